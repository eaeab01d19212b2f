// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random calls, answers, halts, events and ends of a server and its clients, against a model. Afterwards every frame is free.
//!
//! The model knows for each client whether its call waits at the port, waits for an answer, or was rolled back by a halt.

use crate::actor::{ask, call, result};
use crate::messages::{FOREVER, RECORD, Service, call_by};
use pando_abi::holding::stop;
use pando_abi::{Event, HoldingName, Hypercall, Refusal};
use pando_kernel::CellId;
use pando_testing::lab::{Lab, seeds};

/// Steps of each case.
const STEPS: u32 = 150;
const QUESTION: &[u8] = b"question";
const ANSWER: &[u8] = b"an answer";

/// The state of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It can make a call.
    Free,
    /// Its call waits at the port.
    Queued,
    /// Its call was received by this right to reply.
    Received(u64),
    /// It is halted; whether it was in a call.
    Halted(bool),
}

struct Client {
    name: HoldingName,
    id: CellId,
    reference: HoldingName,
    label: u64,
    state: State,
    /// Whether an event waits for the answer.
    has_event: bool,
    /// Whether the port of its call was dropped after the call was received.
    is_stale: bool,
}

struct Case {
    service: Service,
    random: fastrand::Rng,
    clients: Vec<Client>,
    /// Clients whose calls wait, in order.
    queue: Vec<usize>,
    /// The server's rights to reply that it has not used. Some are for nobody.
    rights: Vec<u64>,
    /// Whether the server waits for a call.
    is_receiving: bool,
    labels: u64,
}

impl Case {
    fn new_client(&mut self) -> Client {
        self.labels += 1;
        let (name, id, reference) = self.service.client(self.labels);
        self.service.describe_bytes(id, QUESTION);
        Client { name, id, reference, label: self.labels, state: State::Free, has_event: false, is_stale: false }
    }

    fn serve(&mut self, wanted: Hypercall) -> Result<u64, Refusal> {
        call(&mut self.service.lab, self.service.server, wanted)
    }

    /// Checks that the server has received the call of a client.
    fn check_received(&mut self, client: usize) {
        assert_eq!(result(&self.service.lab, self.service.server), Ok(QUESTION.len() as u64));
        let answer = self.service.answer(self.service.server);
        assert_eq!(answer.label, self.clients[client].label);
        assert_eq!(self.service.received(self.service.server, QUESTION.len()), QUESTION);
        let right = answer.reply.expect("a call is answered").bits();
        self.rights.push(right);
        self.clients[client].state = State::Received(right);
    }

    fn refused(&mut self, client: usize, refusal: Refusal) {
        assert_eq!(result(&self.service.lab, self.clients[client].id), Err(refusal));
        let client = &mut self.clients[client];
        (client.state, client.has_event, client.is_stale) = (State::Free, false, false);
    }

    fn call(&mut self, index: usize) {
        let Client { id, reference, .. } = self.clients[index];
        ask(&self.service.lab, id, call_by(reference, FOREVER));
        self.service.lab.run_all();
        self.called(index);
    }

    /// A client has made a call.
    fn called(&mut self, index: usize) {
        if std::mem::take(&mut self.is_receiving) {
            self.check_received(index);
        } else {
            self.clients[index].state = State::Queued;
            self.queue.push(index);
        }
    }

    fn receive(&mut self, deadline: u64, reply: u64) {
        let receive = self.service.receive(deadline, reply);
        ask(&self.service.lab, self.service.server, receive);
        self.service.lab.run_all();
        if reply != 0 {
            self.replied(reply);
        }
        if !self.queue.is_empty() {
            let client = self.queue.remove(0);
            self.check_received(client);
        } else if deadline == 0 {
            assert_eq!(result(&self.service.lab, self.service.server), Err(Refusal::NothingWaits));
        } else {
            self.is_receiving = true;
        }
    }

    /// A right to reply was used. Returns whether somebody has got the answer.
    fn replied(&mut self, right: u64) -> bool {
        self.rights.retain(|held| *held != right);
        let Some(client) = self.clients.iter_mut().find(|client| client.state == State::Received(right)) else { return false };
        (client.state, client.has_event, client.is_stale) = (State::Free, false, false);
        assert_eq!(result(&self.service.lab, client.id), Ok(ANSWER.len() as u64));
        true
    }

    fn halt(&mut self, index: usize) {
        let Client { name, state, .. } = self.clients[index];
        let halt = Hypercall::CellStop { cell: name.bits(), how: stop::HALT };
        assert!(matches!((self.serve(halt), state), (Ok(0), _) | (Err(Refusal::WrongState), State::Halted(_))));
        self.queue.retain(|queued| *queued != index);
        self.clients[index].state = match state {
            State::Halted(was) => State::Halted(was),
            other => State::Halted(other != State::Free),
        };
    }

    fn end(&mut self, index: usize) {
        self.queue.retain(|queued| *queued != index);
        let holding = self.clients[index].name.bits();
        assert_eq!(self.serve(Hypercall::Drop { holding }), Ok(0));
        self.clients[index] = self.new_client();
    }

    /// The port is dropped, and all clients get references to another one.
    fn drop_port(&mut self) {
        let port = self.service.port.bits();
        assert_eq!(self.serve(Hypercall::Drop { holding: port }), Ok(0));
        for client in std::mem::take(&mut self.queue) {
            self.refused(client, Refusal::NoSuchHolding);
        }
        self.service.port = self.serve(Hypercall::PortCreate {}).ok().and_then(HoldingName::from_bits).expect("room");
        for index in 0..self.clients.len() {
            let Client { name, id, reference, label, state, .. } = self.clients[index];
            if state == State::Free {
                assert_eq!(call(&mut self.service.lab, id, call_by(reference, FOREVER)), Err(Refusal::NoSuchHolding));
            }
            if matches!(state, State::Halted(true)) {
                // It would make its call again by the old name.
                self.end(index);
                continue;
            }
            self.clients[index].is_stale = matches!(state, State::Received(_));
            let grant = Hypercall::Grant { cell: name.bits(), holding: self.service.port.bits(), label };
            self.clients[index].reference = self.serve(grant).ok().and_then(HoldingName::from_bits).expect("room");
        }
    }

    fn interrupt(&mut self, index: usize) {
        self.service.lab.kernel.raise(self.clients[index].id, Event::Console);
        self.service.lab.run_all();
        if self.clients[index].state == State::Queued {
            self.queue.retain(|queued| *queued != index);
            self.refused(index, Refusal::Interrupted);
        }
        self.clients[index].has_event |= matches!(self.clients[index].state, State::Received(_) | State::Halted(true));
    }

    fn step(&mut self) {
        let index = self.random.usize(0..self.clients.len());
        let state = self.clients[index].state;
        if self.is_receiving {
            match self.random.u8(0..4) {
                0 => {
                    self.service.lab.kernel.raise(self.service.server, Event::Console);
                    self.service.lab.run_all();
                    assert_eq!(result(&self.service.lab, self.service.server), Err(Refusal::Interrupted));
                    self.is_receiving = false;
                }
                _ if state == State::Free => self.call(index),
                _ => self.interrupt(index),
            }
            return;
        }
        self.service.describe_bytes(self.service.server, ANSWER);
        let right = self.random.choice(&self.rights).copied();
        match (self.random.u8(0..16), right) {
            (0..4, _) if state == State::Free => self.call(index),
            (4, _) => self.receive(0, 0),
            (5, _) => self.receive(FOREVER, 0),
            (6 | 7, Some(right)) => {
                let replied = self.serve(Hypercall::Reply { reply: right, message: RECORD });
                let is_awaited = self.replied(right);
                assert_eq!(replied, Ok(u64::from(!is_awaited)));
            }
            (8, Some(right)) => self.receive(0, right),
            (9, Some(right)) => self.receive(FOREVER, right),
            (10, Some(right)) => {
                assert_eq!(self.serve(Hypercall::Drop { holding: right }), Ok(0));
                self.rights.retain(|held| *held != right);
                if let Some(client) = self.clients.iter().position(|client| client.state == State::Received(right)) {
                    self.refused(client, Refusal::NoReply);
                }
            }
            (11, _) => self.halt(index),
            (12 | 13, _) => {
                if let State::Halted(was_calling) = state {
                    let resume = Hypercall::CellResume { cell: self.clients[index].name.bits(), how: 0 };
                    assert_eq!(self.serve(resume), Ok(0));
                    self.clients[index].state = State::Free;
                    if was_calling && self.clients[index].is_stale {
                        self.refused(index, Refusal::NoSuchHolding);
                    } else if was_calling && self.clients[index].has_event {
                        self.refused(index, Refusal::Interrupted);
                    } else if was_calling {
                        self.called(index);
                    }
                }
            }
            (14, _) => self.end(index),
            (15, _) if self.random.u8(0..4) == 0 => self.drop_port(),
            (15, _) if !matches!(state, State::Halted(_)) => self.interrupt(index),
            _ => {}
        }
    }
}

#[test]
fn random_calls_and_answers_agree_with_the_model() {
    for seed in seeds(1, 12, 2000) {
        for lab in Lab::both() {
            let service = Service::new(lab);
            let random = fastrand::Rng::with_seed(seed);
            let mut case =
                Case { service, random, clients: Vec::new(), queue: Vec::new(), rights: Vec::new(), is_receiving: false, labels: 0 };
            for _ in 0..4 {
                let client = case.new_client();
                case.clients.push(client);
            }
            for _ in 0..STEPS {
                case.step();
            }
            case.service.close();
        }
    }
}
