// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random verbs from random cells of two families, against a model. Afterwards every frame and every account is free.
//!
//! The model knows the tree of cells with their names for each other, their states and how many descendants each may have.

use crate::actor::{BYTES, call, close, start, template};
use pando_abi::holding::{ChildState, DonationEnd, limit};
use pando_abi::{Event, HoldingName, Hypercall, Refusal};
use pando_kernel::{CellId, RunState};
use pando_machine::PageCount;
use pando_testing::lab::{Lab, seeds};
use std::collections::HashMap;

/// An actor that was started: it never asks for input.
const STARTED: ChildState = ChildState::Started { wants_input: false };

/// Calls in each case.
const CALLS: u32 = 150;
/// Memory of the operator's cells: enough that no call fails for want of it.
const AMPLE: PageCount = PageCount(30_000);

/// A cell of the model.
#[derive(Clone, Debug)]
struct Node {
    parent: Option<CellId>,
    /// Descendants that it may have.
    allowed: u32,
    /// Its names for its children, living or ended.
    children: Vec<(HoldingName, CellId)>,
    /// The name of its template, if it was granted one.
    has_root: bool,
    state: ChildState,
}

/// All cells of the model by identifier; ended ones stay until their holdings are dropped.
struct Model {
    nodes: HashMap<CellId, Node>,
}

impl Model {
    fn add(&mut self, id: CellId, parent: Option<CellId>, allowed: u32, has_root: bool, state: ChildState) {
        self.nodes.insert(id, Node { parent, allowed, children: Vec::new(), has_root, state });
    }

    /// The number of cells below this one that count against it.
    fn descendants(&self, id: CellId) -> u32 {
        self.nodes[&id].children.iter().map(|(_, child)| 1 + self.descendants(*child)).sum()
    }

    /// Whether this cell and all its ancestors may have another descendant.
    fn may_add(&self, id: CellId) -> bool {
        let node = &self.nodes[&id];
        self.descendants(id) < node.allowed && node.parent.is_none_or(|parent| self.may_add(parent))
    }

    /// Marks a cell as ended, and forgets all below it.
    fn end(&mut self, id: CellId, state: ChildState) {
        let children = std::mem::take(&mut self.nodes.get_mut(&id).expect("it is in the model").children);
        children.into_iter().for_each(|(_, child)| self.forget(child));
        self.nodes.get_mut(&id).expect("it is in the model").state = state;
    }

    fn forget(&mut self, id: CellId) {
        self.end(id, ChildState::Killed);
        self.nodes.remove(&id);
    }
}

/// A case in progress.
struct Case {
    lab: Lab,
    model: Model,
    random: fastrand::Rng,
    root: CellId,
}

impl Case {
    /// A cell that can make a call.
    fn caller(&mut self) -> CellId {
        let mut ready: Vec<CellId> = self.model.nodes.iter().filter(|(_, node)| node.state == STARTED).map(|(id, _)| *id).collect();
        // The order of a map is not the seed's.
        ready.sort_unstable();
        *self.random.choice(&ready).expect("the operator's cells live")
    }

    /// A name that the caller may have: that of a child, of its template, or none at all.
    fn name(&mut self, caller: CellId) -> HoldingName {
        let children = &self.model.nodes[&caller].children;
        match self.random.u8(0..10) {
            0 => HoldingName::ROOT,
            1 => HoldingName::new(self.random.u32(0..4096), self.random.u32(1..5)),
            _ => self.random.choice(children).map_or(HoldingName::ROOT, |(name, _)| *name),
        }
    }

    /// The child that the caller knows by this name.
    fn child(&self, caller: CellId, name: HoldingName) -> Option<CellId> {
        self.model.nodes[&caller].children.iter().find(|(held, _)| *held == name).map(|(_, child)| *child)
    }

    /// Makes a random call, and checks its result.
    fn step(&mut self) {
        let caller = self.caller();
        let name = self.name(caller);
        let child = self.child(caller, name);
        let state = child.map(|child| self.model.nodes[&child].state);
        match self.random.u8(0..16) {
            0..4 => self.clone_held(caller, name),
            4 => self.check_verb(caller, Hypercall::CellRun { cell: name.bits() }, child, |state| match state {
                ChildState::New => Ok(STARTED),
                _ => Err(Refusal::WrongState),
            }),
            5 => {
                let how = self.random.u64(0..3);
                // An actor never freezes itself when it is asked.
                self.check_verb(caller, Hypercall::CellStop { cell: name.bits(), how }, child, |state| match (state, how) {
                    (ChildState::New | ChildState::Halted, 1 | 2) | (ChildState::Frozen, 2) => Err(Refusal::WrongState),
                    (STARTED, 1) => Ok(ChildState::Frozen),
                    (STARTED, 2) => Ok(ChildState::Halted),
                    (state, _) => Ok(state),
                });
            }
            6 => self.end_child(caller, name, child),
            7 => self.drop_child(caller, name, child),
            8 => {
                let wanted = state.map(ChildState::bits).ok_or(Refusal::NoSuchHolding);
                assert_eq!(
                    call(&mut self.lab, caller, Hypercall::CellState { cell: name.bits(), fact: 0 }),
                    wanted,
                    "{name:?} of {caller}"
                );
            }
            9 => self.limit(caller, name, child),
            10 => self.grant(caller, name, child),
            11 => {
                let how = self.random.u64(0..3);
                self.check_verb(caller, Hypercall::CellResume { cell: name.bits(), how }, child, |state| match state {
                    ChildState::Halted => Ok(STARTED),
                    _ => Err(Refusal::WrongState),
                });
            }
            12 => {
                let mask = self.random.u64(0..8);
                self.check_verb(caller, Hypercall::CellWatch { cell: name.bits(), mask }, child, Ok);
                let read = Hypercall::StateRead { cell: name.bits(), kind: mask % 4, address: BYTES, bytes: 64 };
                self.check_verb(caller, read, child, |state| match state {
                    ChildState::Halted => Ok(state),
                    _ => Err(Refusal::WrongState),
                });
            }
            13 => self.donate(caller, name, child),
            14 => {
                let value = self.random.u64(1..=10_001);
                let limit = Hypercall::CellLimit { cell: name.bits(), kind: limit::CPU_WEIGHT, value };
                match value {
                    10_001 => assert_eq!(call(&mut self.lab, caller, limit), Err(Refusal::BadArgument)),
                    _ => self.check_verb(caller, limit, child, Ok),
                }
            }
            _ => {
                let event = Event::Interrupt as u64;
                self.check_verb(caller, Hypercall::CellRaise { cell: name.bits(), event, value: 0 }, child, Ok);
                self.write(caller, name, child);
            }
        }
    }

    /// Makes a call about a child, and checks that it has this effect on a living one.
    fn check_verb(
        &mut self,
        caller: CellId,
        verb: Hypercall,
        child: Option<CellId>,
        effect: impl Fn(ChildState) -> Result<ChildState, Refusal>,
    ) {
        let result = call(&mut self.lab, caller, verb);
        match child.filter(|child| !self.model.nodes[child].state.is_ended()) {
            None => assert_eq!(result, Err(Refusal::NoSuchHolding), "{verb:?} by {caller}"),
            Some(child) => {
                let node = self.model.nodes.get_mut(&child).expect("it is in the model");
                let wanted = effect(node.state);
                assert_eq!(result.map(drop), wanted.map(drop), "{verb:?} by {caller}, for one that is {:?}", node.state);
                node.state = wanted.unwrap_or(node.state);
            }
        }
    }

    fn clone_held(&mut self, caller: CellId, name: HoldingName) {
        let cells = self.random.u32(0..12);
        let result = call(&mut self.lab, caller, Hypercall::CellClone { source: name.bits(), quota: 5000, cells: cells.into() });
        let source = self.child(caller, name);
        let is_template = name == HoldingName::ROOT && self.model.nodes[&caller].has_root && source.is_none();
        let source_state = if is_template { Some(ChildState::New) } else { source.map(|child| self.model.nodes[&child].state) };
        match source_state {
            None => assert_eq!(result, Err(Refusal::NoSuchHolding)),
            Some(state) if state.is_ended() => assert_eq!(result, Err(Refusal::NoSuchHolding)),
            // Started actors wait, and halted ones were halted by this parent, so that they can be cloned as well.
            Some(_) if !self.model.may_add(caller) => assert_eq!(result, Err(Refusal::NoMoreCells)),
            Some(_) => {
                let held = result.expect("nothing forbids it");
                let children = self.lab.kernel.children(caller).expect("it lives");
                let (held, child) = *children.iter().find(|(name, _)| name.bits() == held).expect("it is the name of a child");
                self.model.nodes.get_mut(&caller).expect("it is in the model").children.push((held, child));
                self.model.add(child, Some(caller), cells, false, ChildState::New);
            }
        }
    }

    fn end_child(&mut self, caller: CellId, name: HoldingName, child: Option<CellId>) {
        let result = call(&mut self.lab, caller, Hypercall::CellEnd { cell: name.bits() });
        match child.filter(|child| !self.model.nodes[child].state.is_ended()) {
            None => assert_eq!(result, Err(Refusal::NoSuchHolding)),
            Some(child) => {
                assert_eq!(result, Ok(0));
                self.model.end(child, ChildState::Killed);
            }
        }
    }

    fn drop_child(&mut self, caller: CellId, name: HoldingName, child: Option<CellId>) {
        let is_template = child.is_none() && name == HoldingName::ROOT && self.model.nodes[&caller].has_root;
        let result = call(&mut self.lab, caller, Hypercall::Drop { holding: name.bits() });
        assert_eq!(result, if child.is_some() || is_template { Ok(0) } else { Err(Refusal::NoSuchHolding) });
        let node = self.model.nodes.get_mut(&caller).expect("it is in the model");
        if let Some(child) = child {
            node.children.retain(|(held, _)| *held != name);
            self.model.forget(child);
        } else if is_template {
            node.has_root = false;
        }
    }

    /// Donates time to a child, which waits if it was started.
    fn donate(&mut self, caller: CellId, name: HoldingName, child: Option<CellId>) {
        let time = *self.random.choice(&[1, 1_000_000, u64::MAX]).expect("there are three");
        let result = call(&mut self.lab, caller, Hypercall::Donate { cell: name.bits(), time });
        let wanted = child.map(|child| match self.model.nodes[&child].state {
            ChildState::Started { .. } => DonationEnd::Idle,
            state if state.is_ended() => DonationEnd::Ended,
            _ => DonationEnd::Stopped,
        });
        assert_eq!(result, wanted.map(|end| end as u64).ok_or(Refusal::NoSuchHolding));
    }

    fn limit(&mut self, caller: CellId, name: HoldingName, child: Option<CellId>) {
        let value = self.random.u32(0..12);
        self.check_verb(caller, Hypercall::CellLimit { cell: name.bits(), kind: limit::CELLS, value: value.into() }, child, Ok);
        if let Some(child) = child.filter(|child| !self.model.nodes[child].state.is_ended()) {
            self.model.nodes.get_mut(&child).expect("it is in the model").allowed = value;
        }
    }

    fn grant(&mut self, caller: CellId, name: HoldingName, child: Option<CellId>) {
        // A second template would get another name; the model knows one.
        let node = &self.model.nodes[&caller];
        let is_able = node.has_root && self.child(caller, HoldingName::ROOT).is_none();
        if child.is_some_and(|child| self.model.nodes[&child].has_root || !self.model.nodes[&child].children.is_empty()) || !is_able {
            return;
        }
        let result = call(&mut self.lab, caller, Hypercall::Grant { cell: name.bits(), holding: HoldingName::ROOT.bits(), label: 0 });
        match child.filter(|child| !self.model.nodes[child].state.is_ended()) {
            None => assert_eq!(result, Err(Refusal::NoSuchHolding)),
            // Its first slot may have had another holding before.
            Some(child) => match result {
                Ok(held) if held == HoldingName::ROOT.bits() => {
                    self.model.nodes.get_mut(&child).expect("it is in the model").has_root = true
                }
                other => {
                    let held = other.expect("there is room");
                    assert_eq!(call(&mut self.lab, caller, Hypercall::CellEnd { cell: name.bits() }), Ok(0), "{held:#x}");
                    self.model.end(child, ChildState::Killed);
                }
            },
        }
    }

    /// Writes to the memory of a child, which must be living and at rest.
    fn write(&mut self, caller: CellId, name: HoldingName, child: Option<CellId>) {
        let write = Hypercall::Write { space: name.current_space(), address: BYTES, source: BYTES, bytes: 32 };
        let result = call(&mut self.lab, caller, write);
        let is_living = child.is_some_and(|child| !self.model.nodes[&child].state.is_ended());
        assert_eq!(result, if is_living { Ok(0) } else { Err(Refusal::NoSuchHolding) });
    }

    /// Compares the kernel's cells with those of the model.
    fn check(&mut self) {
        self.lab.run_all();
        let living = self.model.nodes.iter().filter(|(_, node)| !node.state.is_ended());
        let mut count = 1;
        for (id, node) in living {
            count += 1;
            let (state, ..) = self.lab.kernel.inspect(*id).expect("it lives in the model");
            let agrees = match node.state {
                ChildState::New => state == RunState::New,
                ChildState::Frozen => state == RunState::Frozen,
                ChildState::Halted => state == RunState::Halted,
                _ => matches!(state, RunState::Idle { .. }),
            };
            assert!(agrees, "{id} is {state}, but {:?} in the model", node.state);
            let mut held: Vec<CellId> = self.lab.kernel.children(*id).expect("it lives").into_iter().map(|(_, child)| child).collect();
            let mut wanted: Vec<CellId> = node.children.iter().map(|(_, child)| *child).collect();
            held.sort_unstable();
            wanted.sort_unstable();
            assert_eq!(held, wanted);
        }
        assert_eq!(self.lab.kernel.cells(), count, "cells live that the model does not know");
        assert!(self.lab.kernel.inspect(self.root).is_ok());
    }
}

#[test]
fn random_verbs_of_two_families_agree_with_the_model() {
    for seed in seeds(1, 12, 2000) {
        for mut lab in Lab::both() {
            let free = lab.kernel.free();
            let root = template(&lab);
            let first = start(&mut lab, root, AMPLE, 40);
            let second = start(&mut lab, root, AMPLE, 9);
            let mut model = Model { nodes: HashMap::new() };
            for (id, allowed) in [(first, 40), (second, 9)] {
                model.add(id, None, allowed, true, STARTED);
            }
            let mut case = Case { lab, model, random: fastrand::Rng::with_seed(seed), root };
            for _ in 0..CALLS {
                case.step();
            }
            case.check();
            close(&mut case.lab, &[first, second, root], free);
        }
    }
}
