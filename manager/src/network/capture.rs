// SPDX-License-Identifier: MIT OR Apache-2.0
//! Captures: writes every frame of the cell's network into a file (pcapng) that Wireshark, tshark and tcpdump open.
//!
//! A separate thread writes blocks that end with a whole frame, so that the file can be read while it grows. Checksums that
//! the network leaves out are computed in the copy.

use super::NetworkError;
use crate::output_file;
use crate::report::{CaptureProblem, Reporter, Warning};
use bytes::Bytes;
use pando_kernel::{Kernel, NetworkId, PacketCapture};
use pando_stack::offload;
use pcap_file::DataLink;
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketBlock;
use pcap_file::pcapng::blocks::interface_description::{InterfaceDescriptionBlock, InterfaceDescriptionOption};
use pcap_file::pcapng::blocks::interface_statistics::{InterfaceStatisticsBlock, InterfaceStatisticsOption};
use pcap_file::pcapng::{PcapNgBlock, PcapNgWriter};
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Frames per write.
const BATCH: usize = 64;
/// The snapshot length: more bytes than any frame has.
const LONGEST: u32 = 1 << 17;
/// The resolution of timestamps: ten to the power of minus this, in seconds.
const NANOSECONDS: u8 = 9;

/// An open capture file, still empty.
#[derive(Debug)]
pub struct Capture {
    file: File,
    path: PathBuf,
}

/// A running capture.
pub struct RunningCapture {
    wake: SyncSender<()>,
    stopped: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Capture {
    /// Creates or truncates the file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn create(path: &Path) -> Result<Capture, NetworkError> {
        let file = output_file::create(path).map_err(|source| NetworkError::Capture { file: path.into(), source })?;
        Ok(Capture { file, path: path.into() })
    }

    /// Starts the capture on a thread of its own.
    ///
    /// # Errors
    /// There is no such network, no thread, or no space for the file.
    pub fn start(self, kernel: &Kernel, network: NetworkId, reporter: Reporter) -> Result<RunningCapture, NetworkError> {
        let Capture { file, path } = self;
        let (wake, woken) = sync_channel(1);
        let waker = wake.clone();
        // If the thread has a wakeup pending, it needs no other.
        let wake_once = move || {
            let _ = waker.try_send(());
        };
        let capture = kernel.capture_packets(network, wake_once)?;
        let stopped = Arc::<AtomicBool>::default();
        let writer = Writer::new(file).map_err(|source| NetworkError::Capture { file: path.clone(), source })?;
        let stop = Arc::clone(&stopped);
        let body = move || {
            write_frames(&capture, &woken, &stop, writer, |problem| reporter.warn(Warning::Capture { file: path.clone(), problem }))
        };
        let thread = std::thread::Builder::new().name("capture".into()).spawn(body).map_err(NetworkError::Thread)?;
        Ok(RunningCapture { wake, stopped, thread })
    }
}

impl RunningCapture {
    /// Writes all received frames and stops.
    pub fn finish(self) {
        self.stopped.store(true, Ordering::SeqCst);
        let _ = self.wake.try_send(());
        // The thread has reported its errors itself.
        let _ = self.thread.join();
    }
}

/// Writes received frames until it is stopped, or a write fails.
fn write_frames(capture: &PacketCapture, woken: &Receiver<()>, stop: &AtomicBool, mut writer: Writer, warn: impl Fn(CaptureProblem)) {
    let mut written = 0;
    loop {
        let last = stop.load(Ordering::SeqCst);
        loop {
            let frames = capture.receive(BATCH);
            if frames.is_empty() {
                break;
            }
            written += frames.len() as u64;
            if let Err(error) = writer.write(&frames) {
                return warn(CaptureProblem::Stopped(error));
            }
        }
        if last || woken.recv().is_err() {
            break;
        }
    }
    let lost = capture.lost();
    if lost > 0 {
        warn(CaptureProblem::Lost { lost, all: written + lost });
    }
    if let Err(error) = writer.finish(written, lost) {
        warn(CaptureProblem::Unfinished(error));
    }
}

/// The file.
struct Writer {
    file: File,
    /// Buffer for the next blocks.
    blocks: PcapNgWriter<Vec<u8>>,
    /// Length of the file up to the last whole block.
    length: u64,
    spare: Vec<u8>,
}

impl Writer {
    fn new(file: File) -> io::Result<Writer> {
        let mut writer = Writer { file, blocks: PcapNgWriter::new(Vec::new()).map_err(plain)?, length: 0, spare: Vec::new() };
        let options = vec![InterfaceDescriptionOption::IfName("network".into()), InterfaceDescriptionOption::IfTsResol(NANOSECONDS)];
        writer.add(InterfaceDescriptionBlock { linktype: DataLink::ETHERNET, snaplen: LONGEST, options })?;
        writer.flush()?;
        Ok(writer)
    }

    fn write(&mut self, frames: &[(Duration, Bytes)]) -> io::Result<()> {
        for (timestamp, frame) in frames {
            let mut data = std::mem::take(&mut self.spare);
            data.clear();
            data.extend_from_slice(frame);
            offload::fill_checksum(&mut data);
            let original_len = frame.len() as u32;
            self.add(EnhancedPacketBlock {
                interface_id: 0,
                timestamp: *timestamp,
                original_len,
                data: (&data).into(),
                options: Vec::new(),
            })?;
            self.spare = data;
        }
        self.flush()
    }

    /// Writes the statistics block: frames written and frames lost.
    fn finish(&mut self, written: u64, lost: u64) -> io::Result<()> {
        let options = vec![InterfaceStatisticsOption::IsbIfRecv(written + lost), InterfaceStatisticsOption::IsbIfDrop(lost)];
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        // The format stores the upper half first; the library leaves that to its user.
        let timestamp = (now.as_nanos() as u64).rotate_left(32);
        self.add(InterfaceStatisticsBlock { interface_id: 0, timestamp, options })?;
        self.flush()
    }

    fn add<'a>(&mut self, block: impl PcapNgBlock<'a>) -> io::Result<()> {
        self.blocks.write_pcapng_block(block).map(drop).map_err(plain)
    }

    /// Writes the buffer. Truncates a partial write where that is possible: readers fail on it.
    fn flush(&mut self) -> io::Result<()> {
        let bytes = self.blocks.get_mut();
        let outcome = self.file.write_all(bytes);
        self.length += bytes.len() as u64;
        if outcome.is_err() {
            let _ = self.file.set_len(self.length - bytes.len() as u64);
        }
        bytes.clear();
        outcome
    }
}

fn plain(error: pcap_file::PcapError) -> io::Error {
    match error {
        pcap_file::PcapError::IoError(error) => error,
        other => io::Error::other(other.to_string()),
    }
}
