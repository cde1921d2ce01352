//! What the two processes say to each other. Things of the other process are known by numbers, which the service gives,
//! and never gives twice.

use super::codec::{wire_enum, wire_struct, Blob, Reader, Wire};
use crate::backend::{
    BackendError, ClientMemoryKind, CompileOptions, Description, Info, Interface, Outcome, Priority, Request,
};
use crate::memory::Access;
use crate::scheduler::Noted;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

/// Bytes of a reply at the most, saved models being the longest. A process that says more is ended.
pub const LONGEST_REPLY: usize = 128 << 20;

/// What the service says. All that has a `call` is answered once, in whatever order. What may be long is no part of it, but goes
/// with it, so that who reads it for all clients need not read that.
pub enum Order {
    /// With a model, and the descriptor of a file that has its constants, if it needs one: which of its operations are taken.
    Support { call: u64, terms: Terms },
    /// With what the source says: compile or load, as executable `number`.
    Prepare { call: u64, number: u64, source: Source, options: CompileOptions, terms: Terms },
    /// Tell what the executable is like.
    Describe { call: u64, number: u64, terms: Terms },
    /// Give the executable as bytes.
    Save { call: u64, number: u64, terms: Terms },
    /// With a descriptor: use this file's bytes as memory `number` of `client` until that is released. Not answered: what is
    /// wrong with it shows when it is used.
    Lend { number: u64, client: u32, offset: u64, len: usize, access: Access, kind: ClientMemoryKind },
    /// With a [`Bound`]: execute it.
    Run { call: u64, terms: Terms },
    /// The caller no longer wants the answer of this call.
    Cancel { call: u64 },
    /// Let go of what has this number.
    Release { number: u64 },
    /// Say that you read.
    Ping { call: u64 },
}

/// What goes with an order.
#[derive(Clone, Copy)]
pub struct With<'a> {
    pub body: &'a [u8],
    pub files: &'a [BorrowedFd<'a>],
}

pub const NOTHING: With<'static> = With { body: &[], files: &[] };

/// What an executable is made of.
#[derive(Clone)]
pub enum Source {
    /// With a model, and the descriptor of a file that has its constants, if it needs one.
    Model,
    /// With the model bytes, of so many for each model file; and with a descriptor for each data file, which has so many bytes.
    Saved { models: Vec<usize>, data: Vec<usize> },
}

/// What is to be executed.
pub enum Bound {
    /// What was bound before under this number.
    Again(u64),
    /// To be kept under the number, if there is one.
    New {
        keep: Option<u64>,
        executable: u64,
        request: Arc<Request>,
        memories: Vec<Option<u64>>,
        reused: bool,
    },
}

/// The terms of a question, compilation, description, save or run.
pub struct Terms {
    pub client: u32,
    pub deadline_ns: Option<u64>,
    pub loop_timeout: Duration,
    pub priority: Priority,
    /// When the recorder began for which the run is to be noted, if there is one.
    pub recorded_since: Option<u64>,
}

/// What the backend's process says.
pub struct Reply {
    /// 0 for what was not asked for.
    pub call: u64,
    pub answer: Answer,
}

pub enum Answer {
    /// It is ready, and is this.
    Hello(Info),
    Support(Vec<Result<(), String>>),
    Prepared(Interface),
    /// The model bytes, and how many bytes each data file has, for each of which there is a descriptor.
    Saved(Option<(Vec<Blob>, Vec<usize>)>),
    Described(Option<Description>),
    /// With what was noted of it.
    Ran(Outcome, Option<Noted>),
    /// What was to be executed is not bound, and is not kept.
    Unbound(BackendError),
    Failed(BackendError),
    Pong,
}

wire_enum!(Order {
    0u8 Support { call: call, terms: terms },
    1u8 Prepare { call: call, number: number, source: source, options: options, terms: terms },
    2u8 Save { call: call, number: number, terms: terms },
    3u8 Lend { number: number, client: client, offset: offset, len: len, access: access, kind: kind },
    4u8 Run { call: call, terms: terms },
    5u8 Cancel { call: call },
    6u8 Release { number: number },
    7u8 Ping { call: call },
    8u8 Describe { call: call, number: number, terms: terms }
});
wire_enum!(Source { 0u8 Model {}, 1u8 Saved { models: models, data: data } });
wire_enum!(Bound {
    0u8 Again { 0: number },
    1u8 New { keep: keep, executable: executable, request: request, memories: memories, reused: reused }
});
wire_struct!(Terms { client, deadline_ns, loop_timeout, priority, recorded_since });
wire_struct!(Reply { call, answer });
wire_enum!(Answer {
    0u8 Hello { 0: info },
    1u8 Support { 0: verdicts },
    2u8 Prepared { 0: interface },
    3u8 Saved { 0: artifact },
    4u8 Ran { 0: outcome, 1: noted },
    5u8 Failed { 0: error },
    6u8 Pong {},
    7u8 Described { 0: description },
    8u8 Unbound { 0: error }
});
