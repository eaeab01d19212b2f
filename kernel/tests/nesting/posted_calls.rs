// SPDX-License-Identifier: MIT OR Apache-2.0
//! Posted calls, `receive` that replies, and cycles of calls.

use crate::actor::{ask, call, result};
use crate::messages::{FOREVER, RECORD, Service, begin_call, call_by, reply};
use pando_abi::limits::MAX_PORTS_AND_CALLS;
use pando_abi::message::{ANSWER_OFFSET, PENDING};
use pando_abi::{Event, HoldingName, Hypercall, MessageRecord, Refusal};
use pando_testing::lab::Lab;

/// A posted call leaves its cell free: the result and the event come later, and `drop` withdraws it.
#[test]
fn posted_calls_are_completed_while_their_cell_goes_on() {
    for lab in Lab::both() {
        let mut service = Service::new(lab);
        let (_, client, reference) = service.client(5);
        let pending = |service: &Service| service.lab.kernel.write(client, RECORD + ANSWER_OFFSET, &PENDING.to_le_bytes());
        service.describe_bytes(client, b"question");
        pending(&service).expect("an actor waits");
        let posted = call(&mut service.lab, client, call_by(reference, 0)).expect("it is posted");
        assert_eq!(call(&mut service.lab, client, Hypercall::Inspect { space: u64::MAX, address: RECORD }).map(|_| ()), Ok(()));
        service.describe_bytes(service.server, b"an answer");
        let receive = service.receive(0, 0);
        assert_eq!(call(&mut service.lab, service.server, receive), Ok(8));
        let right = service.answer(service.server).reply.expect("a call").bits();
        assert_eq!(reply(&mut service, right), Ok(0));
        let answer = service.answer(client);
        assert_eq!((answer.result, service.received(client, 9).as_slice()), (9, &b"an answer"[..]));
        assert_eq!(call(&mut service.lab, client, Hypercall::Drop { holding: posted }), Err(Refusal::NoSuchHolding), "it is over");
        // Withdrawn before it is received, and after that.
        for is_received in [false, true] {
            pending(&service).expect("an actor waits");
            let posted = call(&mut service.lab, client, call_by(reference, 0)).expect("it is posted");
            let right = is_received.then(|| {
                assert_eq!(call(&mut service.lab, service.server, receive), Ok(8));
                service.answer(service.server).reply.expect("a call").bits()
            });
            assert_eq!(call(&mut service.lab, client, Hypercall::Drop { holding: posted }), Ok(0));
            assert_eq!(service.answer(client).result, PENDING);
            match right {
                Some(right) => assert_eq!(reply(&mut service, right), Ok(1)),
                None => assert_eq!(call(&mut service.lab, service.server, receive), Err(Refusal::NothingWaits)),
            }
        }
        // So many, and all are refused when the port is dropped.
        let mut count = 0;
        while call(&mut service.lab, client, call_by(reference, 0)).is_ok() {
            count += 1;
        }
        assert_eq!((count, result(&service.lab, client)), (MAX_PORTS_AND_CALLS, Err(Refusal::TooMany)));
        let port = service.port.bits();
        assert_eq!(call(&mut service.lab, service.server, Hypercall::Drop { holding: port }), Ok(0));
        assert_eq!(service.answer(client).result, Refusal::NoSuchHolding.to_result());
        assert_eq!(call(&mut service.lab, client, Hypercall::PortCreate {}).map(drop), Ok(()), "there is room again");
        service.close();
    }
}

/// `receive` replies once, whether it finds a call, waits, is refused or is halted.
#[test]
fn a_receive_replies_once() {
    for lab in Lab::both() {
        let mut service = Service::new(lab);
        let (_, client, reference) = service.client(5);
        for deadline in [0, FOREVER] {
            let right = begin_call(&mut service, client, reference, FOREVER);
            let receive = service.receive(deadline, right);
            ask(&service.lab, service.server, receive);
            service.lab.run_all();
            assert_eq!(result(&service.lab, client), Ok(9));
            let registers = service.lab.kernel.registers(service.server).expect("it waits");
            if deadline == FOREVER {
                assert_eq!((registers.rax, registers.r10), (receive.encode().0, 0), "it receives again without a reply");
                service.lab.kernel.raise(service.server, Event::Console);
                service.lab.run_all();
                assert_eq!(result(&service.lab, service.server), Err(Refusal::Interrupted));
            } else {
                assert_eq!(result(&service.lab, service.server), Err(Refusal::NothingWaits));
            }
            assert_eq!(reply(&mut service, right), Err(Refusal::NoSuchHolding));
        }
        // A port that is not there: nothing is sent.
        let right = begin_call(&mut service, client, reference, FOREVER);
        let wrong = Hypercall::Receive { port: HoldingName::ROOT.bits(), message: RECORD, deadline: 0, reply: right };
        assert_eq!(call(&mut service.lab, service.server, wrong), Err(Refusal::NoSuchHolding));
        assert_eq!(reply(&mut service, right), Ok(0));
        service.close();
    }
}

/// A cell that calls its own port is told about that by the event; two cells that call each other wait for their deadlines.
#[test]
fn cycles_of_calls_end() {
    for lab in Lab::both() {
        let mut service = Service::new(lab);
        let port = service.port.bits();
        let own = call(&mut service.lab, service.server, Hypercall::Grant { cell: 0, holding: port, label: 9 });
        let own = own.ok().and_then(HoldingName::from_bits).expect("room");
        service.describe_bytes(service.server, b"self");
        assert_eq!(call(&mut service.lab, service.server, call_by(own, FOREVER)), Err(Refusal::Interrupted));
        let receive = service.receive(0, 0);
        assert_eq!(call(&mut service.lab, service.server, receive), Err(Refusal::NothingWaits), "it is withdrawn");
        // The client has a port as well, and sends a reference.
        let (_, client, reference) = service.client(1);
        let port = call(&mut service.lab, client, Hypercall::PortCreate {}).expect("room");
        let back = call(&mut service.lab, client, Hypercall::Grant { cell: 0, holding: port, label: 2 }).expect("room");
        let sending = MessageRecord { holdings: [HoldingName::from_bits(back), None, None, None], size: 64, ..MessageRecord::default() };
        service.describe(client, b"", sending);
        service.describe(service.server, b"", MessageRecord { size: 64, accepted: 4, ..MessageRecord::default() });
        ask(&service.lab, client, call_by(reference, FOREVER));
        service.lab.run_all();
        assert_eq!(call(&mut service.lab, service.server, receive), Ok(0));
        let given = service.answer(service.server).holdings[0].expect("it was sent");
        // The server calls its caller instead of answering, until it has had enough.
        let deadline = service.lab.kernel.now().0 + 3_000_000;
        assert_eq!(call(&mut service.lab, service.server, call_by(given, deadline)), Err(Refusal::TimedOut));
        let right = service.answer(service.server).reply.expect("a call").bits();
        assert_eq!(reply(&mut service, right), Ok(0));
        service.close();
    }
}
