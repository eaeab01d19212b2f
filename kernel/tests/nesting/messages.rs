// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ports and references: synchronous messages between cells, with labels, deadlines and rights to reply.

use crate::actor::{BYTES, QUOTA, ask, call, close, result, start, start_child, template, waits};
use pando_abi::holding::stop;
use pando_abi::message::{ANSWER_OFFSET, MessageResult};
use pando_abi::{Event, HoldingName, Hypercall, MessageRecord, Refusal};
use pando_kernel::CellId;
use pando_machine::PageCount;
use pando_testing::lab::Lab;
use pando_testing::virtual_registers::words;

pub const FOREVER: u64 = u64::MAX;
/// Where the record of a message lies in an actor, and its bytes and buffer.
pub const RECORD: u64 = BYTES + 0x100;
const SENT: u64 = BYTES + 0x200;
const BUFFER: u64 = BYTES + 0x300;

/// A server with a port, and clients, its children, that have references to it.
pub struct Service {
    pub lab: Lab,
    free: PageCount,
    root: CellId,
    pub server: CellId,
    pub port: HoldingName,
}

impl Service {
    pub fn new(mut lab: Lab) -> Service {
        let free = lab.kernel.free();
        let root = template(&lab);
        let server = start(&mut lab, root, PageCount(8000), 20);
        let port = call(&mut lab, server, Hypercall::PortCreate {}).ok().and_then(HoldingName::from_bits).expect("room");
        Service { lab, free, root, server, port }
    }

    /// Starts a client, and gives it a reference. Returns the server's name for the client, the client, and its name for the reference.
    pub fn client(&mut self, label: u64) -> (HoldingName, CellId, HoldingName) {
        let (name, client) = start_child(&mut self.lab, self.server, QUOTA, 2).expect("room");
        let grant = Hypercall::Grant { cell: name.bits(), holding: self.port.bits(), label };
        let reference = call(&mut self.lab, self.server, grant).ok().and_then(HoldingName::from_bits).expect("room");
        (name, client, reference)
    }

    /// Writes a message and its record into an actor.
    pub fn describe(&self, actor: CellId, bytes: &[u8], record: MessageRecord) {
        let record = MessageRecord { address: SENT, bytes: bytes.len() as u64, buffer: BUFFER, ..record };
        let words: Vec<u8> = record.to_words().into_iter().flat_map(u64::to_le_bytes).collect();
        self.lab.kernel.write(actor, RECORD, &words).expect("an actor waits");
        self.lab.kernel.write(actor, SENT, bytes).expect("an actor waits");
    }

    /// Describes a message without holdings, with a buffer of 64 bytes.
    pub fn describe_bytes(&self, actor: CellId, bytes: &[u8]) {
        self.describe(actor, bytes, MessageRecord { size: 64, ..MessageRecord::default() });
    }

    pub fn answer(&self, actor: CellId) -> MessageResult {
        MessageResult::from_words(words(&self.lab, actor, RECORD + ANSWER_OFFSET)).expect("the kernel has written it")
    }

    pub fn received(&self, actor: CellId, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.lab.kernel.read(actor, BUFFER, &mut bytes).expect("an actor waits");
        bytes
    }

    pub fn receive(&self, deadline: u64, reply: u64) -> Hypercall {
        Hypercall::Receive { port: self.port.bits(), message: RECORD, deadline, reply }
    }

    pub fn close(mut self) {
        close(&mut self.lab, &[self.server, self.root], self.free);
    }
}

pub fn call_by(reference: HoldingName, deadline: u64) -> Hypercall {
    Hypercall::Call { reference: reference.bits(), message: RECORD, deadline }
}

#[test]
fn a_message_goes_to_the_server_and_the_answer_comes_back() {
    for lab in Lab::both() {
        let mut service = Service::new(lab);
        let (_, client, reference) = service.client(0xfeed_0000_0001);
        // The server waits first, then the client does.
        for server_first in [true, false, true] {
            service.describe_bytes(service.server, b"");
            service.describe_bytes(client, b"question");
            let (receive, send) = (service.receive(FOREVER, 0), call_by(reference, FOREVER));
            let order =
                if server_first { [(service.server, receive), (client, send)] } else { [(client, send), (service.server, receive)] };
            for (actor, wanted) in order {
                ask(&service.lab, actor, wanted);
                service.lab.run_all();
                assert!(waits(&service.lab, actor));
            }
            assert_eq!(result(&service.lab, service.server), Ok(8));
            let answer = service.answer(service.server);
            assert_eq!((answer.label, service.received(service.server, 8).as_slice()), (0xfeed_0000_0001, &b"question"[..]));
            let reply = answer.reply.expect("a call is answered").bits();
            service.describe_bytes(service.server, b"an answer");
            assert_eq!(call(&mut service.lab, service.server, Hypercall::Reply { reply, message: RECORD }), Ok(0));
            assert_eq!(result(&service.lab, client), Ok(9));
            assert_eq!(service.received(client, 9), b"an answer");
            assert_eq!(service.answer(client).label, 0, "labels are for servers");
            // The right was used up.
            let again = call(&mut service.lab, service.server, Hypercall::Reply { reply, message: RECORD });
            assert_eq!(again, Err(Refusal::NoSuchHolding));
        }
        service.close();
    }
}

/// The words of an idle server and an idle client after a call was received: the client, and the server's right to reply.
pub fn begin_call(service: &mut Service, client: CellId, reference: HoldingName, deadline: u64) -> u64 {
    service.describe_bytes(client, b"question");
    ask(&service.lab, client, call_by(reference, deadline));
    service.lab.run_all();
    service.describe_bytes(service.server, b"an answer");
    let receive = service.receive(FOREVER, 0);
    assert_eq!(call(&mut service.lab, service.server, receive), Ok(8));
    service.answer(service.server).reply.expect("a call is answered").bits()
}

pub fn reply(service: &mut Service, reply: u64) -> Result<u64, Refusal> {
    call(&mut service.lab, service.server, Hypercall::Reply { reply, message: RECORD })
}

/// Each refusal is for the party that has made the mistake, and the other goes on.
#[test]
fn a_refusal_goes_to_the_party_with_the_invalid_argument() {
    for lab in Lab::both() {
        let mut service = Service::new(lab);
        let (_, client, reference) = service.client(1);
        let (_, other, other_reference) = service.client(2);
        let record = |address, bytes, buffer, size| MessageRecord { address, bytes, buffer, size, ..MessageRecord::default() };
        let unmapped = 0x7000_0000;
        let write = |service: &Service, actor, record: MessageRecord| {
            let words: Vec<u8> = record.to_words().into_iter().flat_map(u64::to_le_bytes).collect();
            service.lab.kernel.write(actor, RECORD, &words).expect("an actor waits");
        };
        // Mistakes of callers: the server goes on to wait, and gets the call of the other client.
        let stale = Some(HoldingName::new(9, 9));
        for (wrong, refusal) in [
            (record(unmapped, 8, BUFFER, 64), Refusal::BadAddress),
            (record(SENT, 65, BUFFER, 64), Refusal::TooLong),
            (MessageRecord { holdings: [stale; 4], ..record(SENT, 8, BUFFER, 64) }, Refusal::TooLong),
            (MessageRecord { holdings: [Some(reference), None, None, None], ..record(SENT, 8, BUFFER, 64) }, Refusal::TooLong),
            (record(SENT, (1 << 16) + 1, BUFFER, 64), Refusal::BadArgument),
        ] {
            for server_first in [true, false] {
                service.describe_bytes(service.server, b"");
                write(&service, client, wrong);
                let (receive, send) = (service.receive(FOREVER, 0), call_by(reference, FOREVER));
                let order =
                    if server_first { [(service.server, receive), (client, send)] } else { [(client, send), (service.server, receive)] };
                for (actor, wanted) in order {
                    ask(&service.lab, actor, wanted);
                    service.lab.run_all();
                }
                assert_eq!(result(&service.lab, client), Err(refusal), "{server_first}");
                service.describe_bytes(other, b"fine");
                ask(&service.lab, other, call_by(other_reference, FOREVER));
                service.lab.run_all();
                assert_eq!(result(&service.lab, service.server), Ok(4));
                let right = service.answer(service.server).reply.expect("a call").bits();
                assert_eq!(reply(&mut service, right), Ok(0));
                assert_eq!(result(&service.lab, other), Ok(0));
            }
        }
        // Mistakes of the server: the caller goes on to wait, and its call is received when the server has corrected its record.
        service.describe_bytes(client, b"question");
        ask(&service.lab, client, call_by(reference, FOREVER));
        service.lab.run_all();
        let receive = service.receive(FOREVER, 0);
        write(&service, service.server, record(SENT, 0, unmapped, 64));
        assert_eq!(call(&mut service.lab, service.server, receive), Err(Refusal::BadAddress));
        service.describe_bytes(service.server, b"an answer");
        assert_eq!(call(&mut service.lab, service.server, receive), Ok(8));
        let right = service.answer(service.server).reply.expect("a call").bits();
        write(&service, service.server, record(unmapped, 8, BUFFER, 64));
        assert_eq!(reply(&mut service, right), Err(Refusal::BadAddress), "the right is left");
        service.describe_bytes(service.server, b"an answer");
        assert_eq!(reply(&mut service, right), Ok(0));
        assert_eq!(result(&service.lab, client), Ok(9));
        // The same while the server waits first.
        write(&service, service.server, record(SENT, 0, unmapped, 64));
        ask(&service.lab, service.server, receive);
        service.lab.run_all();
        ask(&service.lab, client, call_by(reference, FOREVER));
        service.lab.run_all();
        assert_eq!(result(&service.lab, service.server), Err(Refusal::BadAddress));
        service.describe_bytes(service.server, b"an answer");
        assert_eq!(call(&mut service.lab, service.server, receive), Ok(8));
        service.close();
    }
}

/// Holdings go with a message all or none, as copies that keep their labels.
#[test]
fn holdings_are_passed_on_all_or_none() {
    for lab in Lab::both() {
        let mut service = Service::new(lab);
        let (_, client, reference) = service.client(1);
        let second = call(&mut service.lab, service.server, Hypercall::PortCreate {}).ok().and_then(HoldingName::from_bits).expect("room");
        let grant = Hypercall::Grant { cell: 0, holding: second.bits(), label: 77 };
        let own = call(&mut service.lab, service.server, grant).ok().and_then(HoldingName::from_bits).expect("room");
        // A reference is passed on with its label, and cannot be given another.
        let relabelled = Hypercall::Grant { cell: 0, holding: own.bits(), label: 78 };
        assert_eq!(call(&mut service.lab, service.server, relabelled), Err(Refusal::BadArgument));
        let receiving = MessageRecord { size: 64, accepted: 4, ..MessageRecord::default() };
        let stale = HoldingName::new(9, 9);
        let mine = call(&mut service.lab, client, Hypercall::PortCreate {}).ok().and_then(HoldingName::from_bits).expect("room");
        // A port, or a name of nothing, cannot be sent; the references beside it are not either.
        for wrong in [stale, mine] {
            service.describe(
                client,
                b"",
                MessageRecord { holdings: [Some(reference), Some(HoldingName::ROOT), Some(wrong), None], ..receiving },
            );
            service.describe(service.server, b"", receiving);
            let receive = service.receive(FOREVER, 0);
            ask(&service.lab, service.server, receive);
            service.lab.run_all();
            assert_eq!(call(&mut service.lab, client, call_by(reference, FOREVER)), Err(Refusal::NoSuchHolding));
            service.describe(client, b"", MessageRecord { holdings: [None, Some(reference), Some(HoldingName::ROOT), None], ..receiving });
            ask(&service.lab, client, call_by(reference, FOREVER));
            service.lab.run_all();
            let answer = service.answer(service.server);
            let [None, Some(back), Some(root), None] = answer.holdings else { panic!("{answer:?}") };
            // The template is one, and the reference leads back to the server itself, with the client's label.
            let clone = Hypercall::CellClone { source: root.bits(), quota: 300, cells: 0 };
            let child = call(&mut service.lab, service.server, clone).expect("it may have children");
            assert_eq!(call(&mut service.lab, service.server, Hypercall::Drop { holding: child }), Ok(0));
            let right = answer.reply.expect("a call").bits();
            service.describe(service.server, b"", MessageRecord { holdings: [Some(own), Some(back), None, None], ..receiving });
            assert_eq!(reply(&mut service, right), Ok(0));
            for name in [back, root] {
                assert_eq!(call(&mut service.lab, service.server, Hypercall::Drop { holding: name.bits() }), Ok(0));
            }
            // The client calls by what it was given.
            let [Some(given), Some(back), None, None] = service.answer(client).holdings else { panic!("two were sent") };
            for (given, port, label) in [(given, second, 77), (back, service.port, 1)] {
                ask(&service.lab, client, call_by(given, FOREVER));
                service.lab.run_all();
                let receive = Hypercall::Receive { port: port.bits(), message: RECORD, deadline: 0, reply: 0 };
                service.describe(service.server, b"", receiving);
                assert_eq!(call(&mut service.lab, service.server, receive), Ok(0));
                let answer = service.answer(service.server);
                assert_eq!(answer.label, label);
                assert_eq!(reply(&mut service, answer.reply.expect("a call").bits()), Ok(0));
            }
        }
        service.close();
    }
}

/// A full table of the receiver refuses the message to the caller, and leaves no holding behind.
#[test]
fn holdings_that_do_not_fit_are_refused() {
    let mut service = Service::new(Lab::sim(1, PageCount(1 << 16), 1, pando_kernel::Config::default()));
    let (_, client, reference) = service.client(1);
    let fill = Hypercall::Grant { cell: 0, holding: service.port.bits(), label: 0 };
    let mut last = Vec::new();
    while let Ok(name) = call(&mut service.lab, service.server, fill) {
        last.push(name);
    }
    assert!(last.len() > 4000, "{}", last.len());
    let mut make_room = |service: &mut Service| {
        let holding = last.pop().expect("there are many");
        assert_eq!(call(&mut service.lab, service.server, Hypercall::Drop { holding }), Ok(0));
    };
    let receiving = MessageRecord { size: 64, accepted: 4, ..MessageRecord::default() };
    let send = |service: &Service, count: usize| {
        let mut holdings = [None; 4];
        holdings[..count].fill(Some(reference));
        service.describe(client, b"", MessageRecord { holdings, ..receiving });
        ask(&service.lab, client, call_by(reference, FOREVER));
    };
    service.describe(service.server, b"", receiving);
    let receive = service.receive(0, 0);
    send(&service, 2);
    service.lab.run_all();
    // No room for the right to reply: that is the server's mistake. Room for that alone: then it is the caller's.
    assert_eq!(call(&mut service.lab, service.server, receive), Err(Refusal::TooMany));
    make_room(&mut service);
    make_room(&mut service);
    assert_eq!(call(&mut service.lab, service.server, receive), Err(Refusal::NothingWaits));
    assert_eq!(result(&service.lab, client), Err(Refusal::TooMany));
    // Nothing was left behind: one holding and the right fit.
    send(&service, 1);
    service.lab.run_all();
    assert_eq!(call(&mut service.lab, service.server, receive), Ok(0));
    service.close();
}

/// A port or a right that is given up, and the end of its holder, refuse the calls that wait for it.
#[test]
fn callers_of_a_dropped_port_or_reply_are_refused() {
    for lab in Lab::both() {
        let mut service = Service::new(lab);
        let (name, server, _) = service.client(0);
        let grandparent = service.server;
        // The child is the server now, and its parent the client.
        for (case, refusal) in [("drop", Refusal::NoSuchHolding), ("reply", Refusal::NoReply), ("freeze", Refusal::NoReply)] {
            let port = call(&mut service.lab, server, Hypercall::PortCreate {}).expect("room");
            let own = call(&mut service.lab, server, Hypercall::Grant { cell: 0, holding: port, label: 3 }).expect("room");
            // The server sends its reference to its parent.
            let receiving = MessageRecord { size: 64, accepted: 4, ..MessageRecord::default() };
            service.describe(server, b"", MessageRecord { holdings: [HoldingName::from_bits(own), None, None, None], ..receiving });
            let to_parent = HoldingName::new(1, 1);
            ask(&service.lab, server, call_by(to_parent, FOREVER));
            service.lab.run_all();
            service.describe(grandparent, b"", receiving);
            let receive = service.receive(0, 0);
            assert_eq!(call(&mut service.lab, grandparent, receive), Ok(0));
            let answer = service.answer(grandparent);
            assert_eq!(reply(&mut service, answer.reply.expect("a call").bits()), Ok(0));
            let reference = answer.holdings[0].expect("it was sent");
            ask(&service.lab, grandparent, call_by(reference, FOREVER));
            service.lab.run_all();
            if case != "drop" {
                let receive = Hypercall::Receive { port, message: RECORD, deadline: FOREVER, reply: 0 };
                service.describe(server, b"", receiving);
                assert_eq!(call(&mut service.lab, server, receive), Ok(0));
            }
            match case {
                "drop" => assert_eq!(call(&mut service.lab, server, Hypercall::Drop { holding: port }), Ok(0)),
                "reply" => {
                    let right = service.answer(server).reply.expect("a call").bits();
                    assert_eq!(call(&mut service.lab, server, Hypercall::Drop { holding: right }), Ok(0));
                }
                _ => service.lab.kernel.force_freeze(server).expect("it was started"),
            }
            service.lab.run_all();
            assert_eq!(result(&service.lab, grandparent), Err(refusal), "{case}");
            let again = call(&mut service.lab, grandparent, call_by(reference, 1));
            assert_eq!(again, Err(if case == "reply" { Refusal::TimedOut } else { Refusal::NoSuchHolding }), "{case}");
        }
        assert_eq!(call(&mut service.lab, grandparent, Hypercall::Drop { holding: name.bits() }), Ok(0));
        service.close();
    }
}

fn stop(service: &mut Service, name: HoldingName, how: u64) {
    assert_eq!(call(&mut service.lab, service.server, Hypercall::CellStop { cell: name.bits(), how }), Ok(0));
}

/// A caller that is halted in its call makes it again when it is resumed, whether it was received or not. The reply to the
/// first call is discarded.
#[test]
fn a_call_that_is_halted_is_rolled_back_and_made_again() {
    for lab in Lab::both() {
        let mut service = Service::new(lab);
        let (name, client, reference) = service.client(1);
        service.describe_bytes(service.server, b"an answer");
        for is_received in [false, true] {
            let mut right = None;
            if is_received {
                right = Some(begin_call(&mut service, client, reference, FOREVER));
            } else {
                service.describe_bytes(client, b"question");
                ask(&service.lab, client, call_by(reference, FOREVER));
                service.lab.run_all();
            }
            stop(&mut service, name, stop::HALT);
            let registers = service.lab.kernel.registers(client).expect("it is halted");
            assert_eq!(registers.rax, call_by(reference, 0).encode().0, "the call was not made yet");
            let receive = service.receive(0, 0);
            assert_eq!(call(&mut service.lab, service.server, receive), Err(Refusal::NothingWaits));
            if let Some(right) = right {
                assert_eq!(reply(&mut service, right), Ok(1));
            }
            let resume = Hypercall::CellResume { cell: name.bits(), how: 0 };
            assert_eq!(call(&mut service.lab, service.server, resume), Ok(0));
            assert_eq!(call(&mut service.lab, service.server, receive), Ok(8));
            let right = service.answer(service.server).reply.expect("a call").bits();
            assert_eq!(reply(&mut service, right), Ok(0));
            assert_eq!(result(&service.lab, client), Ok(9));
        }
        service.close();
    }
}

/// A clone of a caller makes the call of its source again, by holdings of its own. The answer is for the source alone.
#[test]
fn a_clone_in_a_call_makes_it_again_for_itself() {
    for lab in Lab::both() {
        let mut service = Service::new(lab);
        let (name, client, reference) = service.client(1);
        service.describe_bytes(service.server, b"an answer");
        for is_received in [false, true] {
            let right = if is_received {
                Some(begin_call(&mut service, client, reference, FOREVER))
            } else {
                service.describe_bytes(client, b"question");
                ask(&service.lab, client, call_by(reference, FOREVER));
                service.lab.run_all();
                None
            };
            let clone = Hypercall::CellClone { source: name.bits(), quota: QUOTA.0, cells: 0 };
            let clone = call(&mut service.lab, service.server, clone).ok().and_then(HoldingName::from_bits).expect("room");
            // The clone gets a holding of the same name, and another label. First comes a template, as in its source.
            for (holding, label) in [(HoldingName::ROOT, 0), (service.port, 2)] {
                let grant = Hypercall::Grant { cell: clone.bits(), holding: holding.bits(), label };
                assert!(call(&mut service.lab, service.server, grant).is_ok());
            }
            let receive = service.receive(0, 0);
            let right = right.unwrap_or_else(|| {
                assert_eq!(call(&mut service.lab, service.server, receive), Ok(8));
                service.answer(service.server).reply.expect("a call").bits()
            });
            assert_eq!(call(&mut service.lab, service.server, receive), Err(Refusal::NothingWaits), "the clone has not started");
            service.describe_bytes(service.server, b"an answer");
            assert_eq!(reply(&mut service, right), Ok(0));
            assert_eq!(result(&service.lab, client), Ok(9));
            assert_eq!(call(&mut service.lab, service.server, Hypercall::CellRun { cell: clone.bits() }), Ok(0));
            let children = service.lab.kernel.children(service.server).expect("it lives");
            let id = children.into_iter().find(|(held, _)| *held == clone).expect("it is held").1;
            // It has made the call again, and learned first that it is a clone.
            assert_eq!(result(&service.lab, id), Err(Refusal::Interrupted));
            ask(&service.lab, id, call_by(reference, FOREVER));
            service.lab.run_all();
            assert_eq!(call(&mut service.lab, service.server, receive), Ok(8));
            let answer = service.answer(service.server);
            assert_eq!(answer.label, 2);
            assert_eq!(reply(&mut service, answer.reply.expect("a call").bits()), Ok(0));
            assert_eq!((result(&service.lab, id), service.received(id, 9).as_slice()), (Ok(9), &b"an answer"[..]));
        }
        service.close();
    }
}

/// A caller that is frozen or ended in the middle of a call, deadlines, and events.
#[test]
fn a_party_that_stops_ends_the_call() {
    for lab in Lab::both() {
        let mut service = Service::new(lab);
        for is_frozen in [true, false] {
            let (name, client, reference) = service.client(1);
            let right = begin_call(&mut service, client, reference, FOREVER);
            if is_frozen {
                stop(&mut service, name, stop::FORCE);
            } else {
                assert_eq!(call(&mut service.lab, service.server, Hypercall::CellEnd { cell: name.bits() }), Ok(0));
            }
            assert_eq!(reply(&mut service, right), Ok(1));
            // The same before the call is received.
            let (name, client, reference) = service.client(1);
            ask(&service.lab, client, call_by(reference, FOREVER));
            service.lab.run_all();
            if is_frozen {
                stop(&mut service, name, stop::FORCE);
            } else {
                assert_eq!(call(&mut service.lab, service.server, Hypercall::Drop { holding: name.bits() }), Ok(0));
            }
            let receive = service.receive(0, 0);
            assert_eq!(call(&mut service.lab, service.server, receive), Err(Refusal::NothingWaits));
        }
        // A deadline ends a call that waits for the server, or for the answer.
        let (_, client, reference) = service.client(1);
        let soon = |service: &Service| service.lab.kernel.now().0 + 3_000_000;
        let deadline = soon(&service);
        assert_eq!(call(&mut service.lab, client, call_by(reference, deadline)), Err(Refusal::TimedOut));
        let deadline = soon(&service);
        let receive = service.receive(deadline, 0);
        assert_eq!(call(&mut service.lab, service.server, receive), Err(Refusal::TimedOut));
        service.describe_bytes(service.server, b"an answer");
        let receive = service.receive(FOREVER, 0);
        ask(&service.lab, service.server, receive);
        service.lab.run_all();
        service.describe_bytes(client, b"question");
        let deadline = soon(&service);
        assert_eq!(call(&mut service.lab, client, call_by(reference, deadline)), Err(Refusal::TimedOut));
        let right = service.answer(service.server).reply.expect("a call").bits();
        assert_eq!(reply(&mut service, right), Ok(1));
        // An event interrupts a call that was not received, and no other.
        ask(&service.lab, client, call_by(reference, FOREVER));
        service.lab.run_all();
        service.lab.kernel.raise(client, Event::Console);
        service.lab.run_all();
        assert_eq!(result(&service.lab, client), Err(Refusal::Interrupted));
        let right = begin_call(&mut service, client, reference, FOREVER);
        service.lab.kernel.raise(client, Event::Console);
        service.lab.run_all();
        assert_eq!(reply(&mut service, right), Ok(0));
        assert_eq!(result(&service.lab, client), Ok(9));
        service.close();
    }
}
