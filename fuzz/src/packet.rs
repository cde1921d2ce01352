//! Packets of the burst protocol: what is read, written and read again is the same.

#![no_main]

use libfuzzer_sys::fuzz_target;
use nnhal::fmq::codec::{RequestPacket, ResultPacket};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(packet) = RequestPacket::parse(bytes) {
        assert_eq!(RequestPacket::parse(&packet.encode()), Ok(packet));
    }
    if let Ok(packet) = ResultPacket::parse(bytes) {
        assert_eq!(ResultPacket::parse(&packet.encode()), Ok(packet));
    }
});
