// SPDX-License-Identifier: MIT OR Apache-2.0
//! Nested cells: the [`Operator`] of a process that runs in a cell. It asks the kernel that runs this cell, by `/dev/cells`.
//!
//! A thread carries the bytes of all children between the device and ports of this process, so that callers use the same ports as on a
//! host.

mod child;
mod thread;

pub use child::end_of;

use crate::operator::{CellPhase, CellUse, Descendant, Nesting, Operator};
use crate::{LaunchError, Root};
use child::{Child, Preparation, RemotePort};
use pando_abi::holding::{ChildState, fact, limit, port, stop};
use pando_abi::layout::ARGUMENTS;
use pando_abi::watch::{VECTOR_BYTES, resume, state};
use pando_abi::{DescendantRecord, Event, HoldingName};
use pando_kernel::limits::DESCENDANTS_LISTED;
use pando_kernel::{AdmissionCallback, CellId, ConsolePort, CpuLimit, End, OperatorError, Outcome, WatchCallback, Weight};
use pando_machine::{CellsDevice, ConsoleRead, PageCount};
use std::sync::Arc;
use std::time::{Duration, Instant};
use thread::DeviceState;

/// The name of a space of a child; `None`: the one in which it continues.
fn space_of(child: HoldingName, space: Option<u32>) -> u64 {
    space.map_or_else(|| child.current_space(), |space| child.space(space))
}

/// The cells that this process has made in its own cell. They end when this is dropped.
pub struct NestedCells(Arc<DeviceState>);

impl NestedCells {
    /// Starts the thread that serves the device.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(device: CellsDevice) -> Result<NestedCells, LaunchError> {
        let shared = Arc::new(DeviceState::new(device).map_err(LaunchError::Thread)?);
        let served = Arc::clone(&shared);
        std::thread::Builder::new().name("nested cells".into()).spawn(move || served.run()).map_err(LaunchError::Thread)?;
        Ok(NestedCells(shared))
    }

    /// The root that this cell was cloned from, without this cell's changes.
    #[must_use]
    pub fn root() -> Root {
        Root::loaded(CellId::from(HoldingName::ROOT), Vec::new(), Vec::new())
    }

    /// A port whose owner wakes the thread.
    fn port(&self, number: u64) -> RemotePort {
        let waker = Arc::clone(&self.0.waker);
        RemotePort::new(number, move || waker.wake())
    }

    /// Uses a child.
    fn with<T>(&self, cell: CellId, action: impl FnOnce(&CellsDevice, &mut Child) -> Result<T, LaunchError>) -> Result<T, LaunchError> {
        let mut children = self.0.lock();
        let child = children.get_mut(&cell).ok_or(OperatorError::NoSuchCell(cell))?;
        if let Some(Outcome { end, .. }) = &child.outcome {
            return Err(OperatorError::Ended { cell, end: end.clone() }.into());
        }
        action(&self.0.device, child)
    }

    /// Uses the device for a child, which is made before if it is not.
    fn ask<T>(&self, cell: CellId, action: impl FnOnce(&CellsDevice, HoldingName) -> std::io::Result<T>) -> Result<T, LaunchError> {
        self.with(cell, |device, child| {
            child.make(device, false).map_err(LaunchError::Nested)?;
            action(device, child.name).map_err(LaunchError::Nested)
        })
    }

    /// Sets a limit of a child, at once or when it is made.
    fn limit(&self, cell: CellId, kind: u64, value: u64) -> Result<(), LaunchError> {
        self.with(cell, |device, child| match &mut child.preparation {
            Some(preparation) => {
                preparation.limits.push((kind, value));
                Ok(())
            }
            None => device.set_limit(child.name, kind, value).map_err(LaunchError::Nested),
        })
    }

    /// The name of a cell that is cloned: a child, or the root.
    fn source(&self, cell: CellId) -> Result<HoldingName, LaunchError> {
        if self.0.lock().contains_key(&cell) {
            return self.ask(cell, |_, name| Ok(name));
        }
        Ok(cell.holding().ok_or(OperatorError::NoSuchCell(cell))?)
    }

    /// The number of descendants that a child may have, and the name of the root that it may clone.
    fn nesting(&self, nesting: Option<Nesting>) -> Result<Option<(u32, HoldingName)>, LaunchError> {
        nesting.map(|Nesting { descendants, root }| Ok((descendants.get(), self.source(root)?))).transpose()
    }
}

impl Drop for NestedCells {
    fn drop(&mut self) {
        self.0.finish();
    }
}

impl Operator for NestedCells {
    fn clone_cell(&self, source: CellId, memory: PageCount, nesting: Option<Nesting>) -> Result<CellId, LaunchError> {
        let device = &self.0.device;
        let nesting = self.nesting(nesting)?;
        let descendants = nesting.map_or(0, |(descendants, _)| descendants);
        let name = device.clone_cell(self.source(source)?, memory.0, descendants).map_err(LaunchError::Nested)?;
        let cell = CellId::from(name);
        self.0.lock().insert(cell, Child::new(name, self.port(port::CONSOLE)));
        if let Some((_, root)) = nesting
            && let Err(error) = device.grant(name, root)
        {
            self.discard(cell);
            return Err(LaunchError::Nested(error));
        }
        Ok(cell)
    }

    fn prepare_cell(&self, source: CellId, memory: PageCount, nesting: Option<Nesting>, block: Vec<u8>) -> Result<CellId, LaunchError> {
        let cell = CellId::placeholder(self.0.next_number());
        let (source, nesting) = (self.source(source)?, self.nesting(nesting)?);
        let preparation = Preparation { source, memory, nesting, block, limits: Vec::new(), host_name: None };
        self.0.lock().insert(cell, Child::prepared(preparation, self.port(port::CONSOLE)));
        Ok(cell)
    }

    fn write_arguments(&self, cell: CellId, block: &[u8]) -> Result<(), LaunchError> {
        self.ask(cell, |device, name| device.write(name, ARGUMENTS, block))
    }

    fn set_cpu_limit(&self, cell: CellId, limit: CpuLimit) -> Result<(), LaunchError> {
        let thousandths = (limit.fraction() * 1000.0).ceil() as u64;
        self.limit(cell, limit::CPU, thousandths)
    }

    fn set_weight(&self, cell: CellId, weight: Weight) -> Result<(), LaunchError> {
        self.limit(cell, limit::CPU_WEIGHT, weight.get())
    }

    fn set_host_name(&self, cell: CellId, name: &str) -> Result<(), LaunchError> {
        self.with(cell, |device, child| match &mut child.preparation {
            Some(preparation) => {
                preparation.host_name = Some(name.into());
                Ok(())
            }
            None => device.set_name(child.name, name).map_err(LaunchError::Nested),
        })
    }

    fn set_window(&self, cell: CellId, rows: u16, columns: u16) -> Result<(), LaunchError> {
        let size = u64::from(rows) << 16 | u64::from(columns);
        self.ask(cell, |device, name| device.raise(name, Event::WindowSize, size))
    }

    fn start_with(&self, cell: CellId, on_admission: Option<AdmissionCallback>) -> Result<(), LaunchError> {
        self.with(cell, |device, child| {
            if !child.make(device, true).map_err(LaunchError::Nested)? {
                device.run(child.name).map_err(LaunchError::Nested)?;
            }
            child.is_polled = true;
            Ok(())
        })?;
        self.0.waker.wake();
        // Nested cells are not queued.
        if let Some(callback) = on_admission {
            callback();
        }
        Ok(())
    }

    fn end(&self, cell: CellId, end: End) -> Result<(), LaunchError> {
        self.with(cell, |device, child| {
            if child.preparation.is_some() {
                child.end_unstarted(end);
                self.0.changed().notify_all();
                return Ok(());
            }
            // The first reason counts.
            child.reason.get_or_insert(end);
            child.is_polled = true;
            if child.state == ChildState::Frozen {
                child.state = ChildState::Started { wants_input: true };
            }
            device.end(child.name).map_err(LaunchError::Nested)
        })?;
        self.0.waker.wake();
        Ok(())
    }

    fn raise(&self, cell: CellId, event: Event) {
        // It may have ended.
        let _ = self.ask(cell, |device, name| device.raise(name, event, 0));
    }

    fn interrupt(&self, cell: CellId) -> Result<(), LaunchError> {
        self.ask(cell, |device, name| device.raise(name, Event::Interrupt, 0))
    }

    fn console(&self, cell: CellId) -> Result<Arc<ConsolePort>, LaunchError> {
        self.with(cell, |_, child| Ok(Arc::clone(&child.console.port)))
    }

    fn control(&self, cell: CellId) -> Result<Arc<ConsolePort>, LaunchError> {
        let new = self.port(port::CONTROL);
        let opened = self.with(cell, |device, child| {
            if let Some(control) = &child.control {
                return Ok(Arc::clone(&control.port));
            }
            // The first call opens it, so there is nothing to read yet.
            child.make(device, false).map_err(LaunchError::Nested)?;
            let first: ConsoleRead = device.read_console(child.name, port::CONTROL, &mut [0]).map_err(LaunchError::Nested)?;
            debug_assert_eq!(first, ConsoleRead::Nothing);
            Ok(Arc::clone(&child.control.insert(new).port))
        })?;
        self.0.waker.wake();
        Ok(opened)
    }

    fn freeze(&self, cell: CellId, by_force: bool) -> Result<(), LaunchError> {
        let how = if by_force { stop::FORCE } else { stop::ASK };
        self.ask(cell, |device, name| device.stop(name, how).map(drop))?;
        self.0.waker.wake();
        Ok(())
    }

    fn withdraw_freeze(&self, cell: CellId) -> Result<bool, LaunchError> {
        self.ask(cell, |device, name| device.stop(name, stop::WITHDRAW).map(|is_in_time| is_in_time != 0))
    }

    fn wait_frozen(&self, cell: CellId, limit: Option<Duration>) -> Result<bool, LaunchError> {
        let end = limit.and_then(|limit| Instant::now().checked_add(limit));
        let mut children = self.0.lock();
        loop {
            let child = children.get(&cell).ok_or(OperatorError::NoSuchCell(cell))?;
            if let Some(Outcome { end, .. }) = &child.outcome {
                return Err(OperatorError::Ended { cell, end: end.clone() }.into());
            }
            if child.state == ChildState::Frozen {
                return Ok(true);
            }
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            children = match left {
                None => self.0.changed().wait(children).expect("no holder of this lock panics"),
                Some(Duration::ZERO) => return Ok(false),
                Some(left) => self.0.changed().wait_timeout(children, left).expect("no holder of this lock panics").0,
            };
        }
    }

    fn wait(&self, cell: CellId) -> Result<Outcome, LaunchError> {
        let mut children = self.0.lock();
        loop {
            let child = children.get_mut(&cell).ok_or(OperatorError::NoSuchCell(cell))?;
            if let Some(outcome) = child.outcome.take() {
                let name = child.name;
                children.remove(&cell);
                // It has ended, so nothing else is lost.
                let _ = self.0.device.give_up(name);
                return Ok(outcome);
            }
            if child.state == ChildState::Frozen {
                return Err(OperatorError::Froze.into());
            }
            children = self.0.changed().wait(children).expect("no holder of this lock panics");
        }
    }

    fn usage(&self, cell: CellId) -> Option<CellUse> {
        if self.0.lock().get(&cell).is_some_and(|child| child.preparation.is_some()) {
            return Some(CellUse { memory: PageCount(0), cpu: Duration::ZERO, exits: None, phase: CellPhase::Active });
        }
        let facts = self.ask(cell, |device, name| Ok((device.fact(name, fact::USED)?, device.fact(name, fact::CPU)?)));
        let used =
            |(pages, cpu)| CellUse { memory: PageCount(pages), cpu: Duration::from_nanos(cpu), exits: None, phase: CellPhase::Active };
        facts.ok().map(used)
    }

    fn descendants(&self, cell: CellId) -> Vec<Descendant> {
        let mut all = Vec::new();
        // One that is not made yet has none.
        if self.0.lock().get(&cell).is_some_and(|child| child.preparation.is_some()) {
            return all;
        }
        let mut buffer = vec![0; VECTOR_BYTES / DescendantRecord::SIZE * DescendantRecord::SIZE];
        while all.len() < DESCENDANTS_LISTED {
            let kind = state::DESCENDANTS | (all.len() as u64) << 32;
            // It may have ended meanwhile.
            let count = self.ask(cell, |device, name| device.read_state(name, kind, &mut buffer)).unwrap_or(0);
            let records = buffer[..count].as_chunks().0.iter().filter_map(DescendantRecord::from_bytes);
            all.extend(records.map(Descendant::from));
            if count < buffer.len() {
                break;
            }
        }
        all
    }

    fn watch(&self, cell: CellId, events: u64, callback: WatchCallback) -> Result<(), LaunchError> {
        self.with(cell, |device, child| {
            if child.callback.is_some() {
                return Err(OperatorError::Watched(cell).into());
            }
            child.make(device, false).map_err(LaunchError::Nested)?;
            device.watch(child.name, events).map_err(LaunchError::Nested)?;
            child.callback = Some(callback);
            Ok(())
        })
    }

    fn set_watched_events(&self, cell: CellId, events: u64) -> Result<(), LaunchError> {
        self.ask(cell, |device, name| device.watch(name, events))
    }

    fn unwatch(&self, cell: CellId) {
        // It may have ended, or not be halted.
        let _ = self.with(cell, |device, child| {
            child.callback = None;
            device.watch(child.name, 0).and_then(|()| device.resume(child.name, resume::CONTINUE)).map_err(LaunchError::Nested)
        });
    }

    fn halt(&self, cell: CellId) -> Result<(), LaunchError> {
        self.ask(cell, |device, name| device.halt(name))
    }

    fn resume(&self, cell: CellId, how: u64) -> Result<(), LaunchError> {
        self.ask(cell, |device, name| device.resume(name, how))
    }

    fn cell_state(&self, cell: CellId) -> Result<ChildState, LaunchError> {
        self.ask(cell, |device, name| device.state(name))
    }

    fn read_state(&self, cell: CellId, kind: u64, bytes: &mut [u8]) -> Result<usize, LaunchError> {
        self.ask(cell, |device, name| device.read_state(name, kind, bytes))
    }

    fn write_state(&self, cell: CellId, kind: u64, bytes: &[u8]) -> Result<(), LaunchError> {
        self.ask(cell, |device, name| device.write_state(name, kind, bytes))
    }

    fn read_space(&self, cell: CellId, space: Option<u32>, address: u64, bytes: &mut [u8]) -> Result<usize, LaunchError> {
        self.ask(cell, |device, name| device.read(space_of(name, space), address, bytes))
    }

    fn write_space(&self, cell: CellId, space: Option<u32>, address: u64, bytes: &[u8]) -> Result<(), LaunchError> {
        self.ask(cell, |device, name| device.write_space(space_of(name, space), address, bytes))
    }

    fn discard(&self, cell: CellId) {
        if let Some(child) = self.0.lock().remove(&cell) {
            child.close();
            // The device gives it up at the end of this process at the latest.
            let _ = self.0.device.give_up(child.name);
        }
    }

    fn discard_root(&self, root: Root) {
        self.discard(root.cell());
    }

    fn available(&self) -> PageCount {
        let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
        let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0_u64);
        PageCount(kilobytes / 4)
    }
}
