// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checksum and segmentation offload in software, for frames between links that compute no checksums and the outside.
//!
//! All frames are untrusted: a frame without a readable TCP or UDP packet stays unchanged.

use core::ops::Range;
use smoltcp::wire::{
    EthernetFrame, EthernetProtocol, Icmpv4Packet, Icmpv6Packet, IpAddress, IpProtocol, Ipv4Packet, Ipv6Packet, TcpPacket, UdpPacket,
    checksum,
};

/// Bytes of an Ethernet header.
const HEADER: usize = EthernetFrame::<&[u8]>::header_len();
/// Bytes of the shortest IP and TCP headers together.
const HEADERS4: usize = 40;
const HEADERS6: usize = 60;
/// Bytes of a TCP header without options.
const HEADER_TCP: usize = 20;

/// A complete, unfragmented IP packet in a frame.
struct LocatedPacket {
    source: IpAddress,
    destination: IpAddress,
    protocol: IpProtocol,
    /// The range of its payload in the frame.
    payload: Range<usize>,
}

/// Finds the packet in a frame; `None` if there is no complete one.
fn find_packet(frame: &[u8]) -> Option<LocatedPacket> {
    let ethernet = EthernetFrame::new_checked(frame).ok()?;
    match ethernet.ethertype() {
        EthernetProtocol::Ipv4 => {
            let packet = Ipv4Packet::new_checked(ethernet.payload()).ok().filter(|packet| packet.version() == 4)?;
            let payload = HEADER + usize::from(packet.header_len())..HEADER + usize::from(packet.total_len());
            let is_whole = !packet.more_frags() && packet.frag_offset() == 0;
            let (source, destination) = (packet.src_addr().into(), packet.dst_addr().into());
            is_whole.then(|| LocatedPacket { source, destination, protocol: packet.next_header(), payload })
        }
        EthernetProtocol::Ipv6 => {
            let packet = Ipv6Packet::new_checked(ethernet.payload()).ok().filter(|packet| packet.version() == 6)?;
            let payload = HEADER + packet.header_len()..HEADER + packet.total_len();
            let (source, destination) = (packet.src_addr().into(), packet.dst_addr().into());
            Some(LocatedPacket { source, destination, protocol: packet.next_header(), payload })
        }
        _ => None,
    }
}

/// A UDP or TCP checksum that is left to the receiver of the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offload {
    /// Offset of the first summed byte; the sum covers the rest of the frame.
    pub start: usize,
    /// Offset of the checksum field from there.
    pub field: usize,
    /// Bytes of all headers of a TCP packet; segmentation cuts the data after them.
    pub headers: Option<usize>,
    /// The packet is IPv6.
    pub is_v6: bool,
}

/// Prepares a frame for checksum offload (and for segmentation, if it is TCP): writes the sum of the pseudo header into
/// the checksum field. Returns the offload and the length of the frame without padding; `None` if it has no such checksum.
pub fn offload_checksum(frame: &mut [u8]) -> Option<(Offload, usize)> {
    let LocatedPacket { source, destination, protocol, payload } = find_packet(frame)?;
    let (start, end) = (payload.start, payload.end);
    let partial = checksum::pseudo_header(&source, &destination, protocol, payload.len() as u32);
    let bytes = frame.get_mut(payload)?;
    let (field, headers) = match protocol {
        IpProtocol::Tcp => (16, Some(start + usize::from(TcpPacket::new_checked(&*bytes).ok()?.header_len()))),
        // Bytes beyond the UDP length are not part of its checksum, but would be summed.
        IpProtocol::Udp if usize::from(UdpPacket::new_checked(&*bytes).ok()?.len()) == bytes.len() => (6, None),
        _ => return None,
    };
    bytes.get_mut(field..field + 2)?.copy_from_slice(&partial.to_be_bytes());
    Some((Offload { start, field, headers, is_v6: matches!(source, IpAddress::Ipv6(_)) }, end))
}

/// Writes the TCP or UDP checksum into a frame. The cost is a pass over it.
pub fn fill_checksum(frame: &mut [u8]) {
    let Some(LocatedPacket { source, destination, protocol, payload }) = find_packet(frame) else { return };
    let Some(bytes) = frame.get_mut(payload) else { return };
    match protocol {
        IpProtocol::Tcp => {
            if let Ok(mut packet) = TcpPacket::new_checked(bytes) {
                packet.fill_checksum(&source, &destination);
            }
        }
        IpProtocol::Udp => {
            if let Ok(mut packet) = UdpPacket::new_checked(bytes) {
                packet.fill_checksum(&source, &destination);
            }
        }
        _ => {}
    }
}

/// Whether the verifiable checksums in a frame are right. Those after the IP header are verified only with `all`,
/// which costs a pass over the frame.
#[must_use]
pub fn has_valid_checksums(frame: &[u8], all: bool) -> bool {
    let header_is_wrong = || {
        let ethernet = EthernetFrame::new_checked(frame).ok()?;
        let packet = Ipv4Packet::new_checked(ethernet.payload()).ok()?;
        Some(ethernet.ethertype() == EthernetProtocol::Ipv4 && !packet.verify_checksum())
    };
    if header_is_wrong() == Some(true) {
        return false;
    }
    let Some(LocatedPacket { source, destination, protocol, payload }) = find_packet(frame).filter(|_| all) else { return true };
    let bytes = frame.get(payload).unwrap_or_default();
    match (protocol, source, destination) {
        (IpProtocol::Tcp, ..) => TcpPacket::new_checked(bytes).is_ok_and(|packet| packet.verify_checksum(&source, &destination)),
        (IpProtocol::Udp, ..) => UdpPacket::new_checked(bytes).is_ok_and(|packet| packet.verify_checksum(&source, &destination)),
        (IpProtocol::Icmp, ..) => Icmpv4Packet::new_checked(bytes).is_ok_and(|packet| packet.verify_checksum()),
        (IpProtocol::Icmpv6, IpAddress::Ipv6(source), IpAddress::Ipv6(destination)) => {
            Icmpv6Packet::new_checked(bytes).is_ok_and(|packet| packet.verify_checksum(&source, &destination))
        }
        _ => true,
    }
}

/// Raises the MSS option of a SYN from the value for packets of `from` bytes to that for packets of `to` bytes. For
/// frames that enter a link whose outgoing segments are cut (TSO). The checksum is not updated.
pub fn raise_mss(frame: &mut [u8], from: usize, to: usize) {
    /// Kinds of options (RFC 9293).
    const END: u8 = 0;
    const NOP: u8 = 1;
    const MSS: u8 = 2;
    let Some(LocatedPacket { source, protocol: IpProtocol::Tcp, payload, .. }) = find_packet(frame) else { return };
    let Some(Ok(packet)) = frame.get(payload.clone()).map(TcpPacket::new_checked) else { return };
    if !packet.syn() {
        return;
    }
    let headers = if matches!(source, IpAddress::Ipv6(_)) { HEADERS6 } else { HEADERS4 };
    let options = payload.start + packet.header_len() as usize;
    let mut at = payload.start + HEADER_TCP;
    while at + 1 < options {
        match (frame[at], frame[at + 1]) {
            (END, _) => return,
            (NOP, _) => at += 1,
            (MSS, 4) if at + 4 <= options => {
                let mss = usize::from(u16::from_be_bytes([frame[at + 2], frame[at + 3]]));
                let raised = u16::try_from(to.saturating_sub(headers)).unwrap_or(u16::MAX);
                if mss + headers >= from && mss < usize::from(raised) {
                    frame[at + 2..at + 4].copy_from_slice(&raised.to_be_bytes());
                }
                return;
            }
            (_, length) => at += usize::from(length).max(2),
        }
    }
}

/// Clears "don't fragment" of an IPv4 packet that may be longer than the next link's MTU. The identification `number`
/// must be unique among the sender's packets in flight.
pub fn clear_dont_fragment(frame: &mut [u8], number: u16) {
    if !matches!(find_packet(frame), Some(LocatedPacket { source: IpAddress::Ipv4(_), .. })) {
        return;
    }
    if let Some(Ok(mut packet)) = frame.get_mut(HEADER..).map(Ipv4Packet::new_checked) {
        packet.set_dont_frag(false);
        packet.set_ident(number);
        packet.fill_checksum();
    }
}

#[cfg(test)]
mod tests {
    use super::{HEADER, Offload, clear_dont_fragment, fill_checksum, has_valid_checksums, offload_checksum, raise_mss};
    use alloc::vec::Vec;
    use core::net::IpAddr;

    /// A frame with a packet of this protocol, with the IP header checksum only.
    fn frame(from: &str, to: &str, protocol: u8, payload: &[u8]) -> Vec<u8> {
        let [from, to]: [IpAddr; 2] = [from, to].map(|text| text.parse().expect("an address"));
        let length = payload.len() as u16;
        let (kind, header) = match (from, to) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let total = (length + 20).to_be_bytes();
                let fixed = [0x45, 0, total[0], total[1], 0, 0, 0x40, 0, 64, protocol, 0, 0];
                ([8, 0], [&fixed[..], &from.octets(), &to.octets()].concat())
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                let fixed = [0x60, 0, 0, 0, (length >> 8) as u8, length as u8, protocol, 64];
                ([0x86, 0xdd], [&fixed[..], &from.octets(), &to.octets()].concat())
            }
            _ => panic!("they are of one family"),
        };
        let mut frame = [&[2; 12][..], &kind, &header, payload].concat();
        if from.is_ipv4() {
            smoltcp::wire::Ipv4Packet::new_unchecked(&mut frame[HEADER..]).fill_checksum();
        }
        frame
    }

    /// A SYN whose MSS option stands behind padding.
    fn beginning(mss: u16) -> Vec<u8> {
        let [high, low] = mss.to_be_bytes();
        [&[0x1f, 0x90, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0, 0x80, 2, 0xff, 0xff, 0, 0, 0, 0][..], &[1, 3, 3, 7, 2, 4, high, low, 1, 1, 1, 0]]
            .concat()
    }

    const V4: [&str; 2] = ["10.77.0.2", "10.77.0.1"];
    const V6: [&str; 2] = ["fd70:616e:646f::2", "fd70:616e:646f::1"];

    #[test]
    fn filled_checksums_are_valid_until_the_frame_changes() {
        for [from, to] in [V4, V6] {
            for (protocol, payload) in [(6, beginning(1460)), (17, [0, 7, 0, 7, 0, 11, 0, 0, 1, 2, 3].to_vec())] {
                let mut frame = frame(from, to, protocol, &payload);
                assert!(!has_valid_checksums(&frame, true) || protocol == 17, "{from} {protocol}");
                fill_checksum(&mut frame);
                assert!(has_valid_checksums(&frame, true), "{from} {protocol}");
                *frame.last_mut().expect("it has bytes") ^= 1;
                assert!(!has_valid_checksums(&frame, true) && has_valid_checksums(&frame, false), "{from} {protocol}");
            }
        }
        let mut damaged = frame(V4[0], V4[1], 6, &beginning(1460));
        damaged[HEADER + 8] ^= 1;
        assert!(!has_valid_checksums(&damaged, false), "the header's own sum is looked at always");
    }

    #[test]
    fn an_offloaded_checksum_is_completed_by_adding_the_rest() {
        for ([from, to], is_v6) in [(V4, false), (V6, true)] {
            let start = if is_v6 { 54 } else { 34 };
            let mut left = frame(from, to, 6, &beginning(1460));
            let whole = left.len();
            // Senders pad short frames.
            left.extend([9; 5]);
            let offload = Offload { start, field: 16, headers: Some(start + 32), is_v6 };
            assert_eq!(offload_checksum(&mut left), Some((offload, whole)));
            left.truncate(whole);
            let sum = !smoltcp::wire::checksum::data(&left[start..]);
            left[start + 16..start + 18].copy_from_slice(&sum.to_be_bytes());
            assert!(has_valid_checksums(&left, true));
        }
    }

    #[test]
    fn long_segments_are_allowed_where_whole_packets_were() {
        let raised = |[from, to]: [&str; 2], mss: u16| {
            let mut frame = frame(from, to, 6, &beginning(mss));
            raise_mss(&mut frame, 1500, 65_535);
            let at = frame.len() - 6;
            u16::from_be_bytes([frame[at], frame[at + 1]])
        };
        assert_eq!((raised(V4, 1460), raised(V6, 1440)), (65_495, 65_475));
        assert_eq!((raised(V4, 1400), raised(V6, 1400)), (1400, 1400), "the way beyond takes less");
        assert_eq!(raised(V4, 65_530), 65_530);
    }

    #[test]
    fn routers_may_fragment_packets_after_permission() {
        let mut long = frame(V4[0], V4[1], 17, &[0; 3000]);
        clear_dont_fragment(&mut long, 7);
        assert!(has_valid_checksums(&long, false));
        assert_eq!((long[HEADER + 6], long[HEADER + 5]), (0, 7));
    }

    #[test]
    fn nothing_that_comes_breaks_anything() {
        let mut random = fastrand::Rng::with_seed(6);
        for round in 0..20_000 {
            let [from, to] = if round % 2 == 0 { V4 } else { V6 };
            let mut frame = frame(from, to, [6, 17, 1, 58][random.usize(..4)], &beginning(1460));
            frame.truncate(random.usize(..=frame.len()));
            for _ in 0..random.usize(..4) {
                if !frame.is_empty() {
                    let at = random.usize(..frame.len());
                    frame[at] = random.u8(..);
                }
            }
            let _ = has_valid_checksums(&frame, true);
            fill_checksum(&mut frame);
            raise_mss(&mut frame, 1500, 65_535);
            clear_dont_fragment(&mut frame, 1);
            if let Some((Offload { start, field, headers, .. }, length)) = offload_checksum(&mut frame) {
                assert!(start + field + 2 <= length && length <= frame.len() && headers.is_none_or(|headers| headers <= length));
            }
        }
    }
}
