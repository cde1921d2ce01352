//! The limits of a driver: how much of everything all clients may hold, one alone, and each at the least.
//!
//! docs/SECURITY.md has them as a table, which a test holds against these.

use crate::memory::{machine_bytes, mappable_bytes};
use crate::quota::Quota;
use std::sync::Arc;

/// A limit on one kind of thing; [`Quota`] has the rule by which it is shared out.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    /// What is counted, as a sentence about too many of them has it.
    pub what: &'static str,
    pub total: Total,
    /// One client alone may hold one part in so many.
    pub parts: u64,
    /// What every client may hold while there is any left.
    pub floor: u64,
}

#[derive(Clone, Copy, Debug)]
pub enum Total {
    Count(u64),
    /// One part in so many of the descriptors that this process may open.
    Descriptors(u64),
    /// Bytes of clients' memory that this process may have mapped.
    Mappable,
    /// One part in so many of the memory that this process may use, up to so many bytes.
    Memory {
        part: u64,
        most: u64,
    },
}

impl Limit {
    const fn new(what: &'static str, total: Total, floor: u64) -> Self {
        Limit { what, total, parts: 4, floor }
    }

    /// How much there is now.
    pub fn total(&self) -> u64 {
        match self.total {
            Total::Count(count) => count,
            Total::Descriptors(parts) => descriptors() / parts,
            Total::Mappable => mappable_bytes(),
            Total::Memory { part, most } => (machine_bytes() as u64 / part).min(most),
        }
    }

    pub fn quota(&self) -> Arc<Quota> {
        let total = self.total();
        Quota::with_floor(total, total / self.parts, self.floor)
    }
}

/// Descriptors that this process may open.
fn descriptors() -> u64 {
    use nix::sys::resource::{getrlimit, Resource};
    let (soft, _) = getrlimit(Resource::RLIMIT_NOFILE).unwrap_or((1024, 1024));
    #[allow(clippy::useless_conversion)] // rlim_t has 32 bits on 32-bit Android
    let soft = u64::from(soft);
    soft.min(1 << 20)
}

/// Each holds a thread until it returns.
pub const CALLBACKS: Limit = Limit::new("callbacks have not been answered", Total::Count(512), 4);
/// Each holds a binder thread, of which there are more. Copies to and from device buffers are counted as such. One may have half
/// of all, as the processes of one client may be many.
pub const EXECUTIONS: Limit = Limit { parts: 2, ..Limit::new("executions wait or run", Total::Count(96), 2) };
/// Each holds a binder thread, too, until the model is checked: one that is large is checked by turns.
pub const CHECKS: Limit = Limit { parts: 2, ..Limit::new("models are being checked", Total::Count(64), 2) };
pub const MODELS: Limit = Limit::new("prepared models are alive", Total::Count(8192), 16);
/// With large private buffers and device buffers three quarters of what the kernel allows a process: stacks of threads, models from
/// files and executions in passing are mappings, too, and without any left the guard could put nothing in place of memory that
/// vanishes. A burst may keep 64.
pub const MAPPINGS: Limit = Limit::new("memories are mapped", Total::Count(24_000), 256);
/// Those from 128 KiB on, each of which is a mapping of its own. One may have half of all, as it may have half of all private memory.
pub const LARGE_BUFFERS: Limit =
    Limit { parts: 2, ..Limit::new("large private buffers are held", Total::Count(16_384), 256) };
/// Addresses and page tables are everybody's, and a client's file may have holes, which cost it nothing. One may have half of all, as
/// weights of some GiB may be mapped by several models and executions at once.
pub const MAPPED_BYTES: Limit =
    Limit { parts: 2, ..Limit::new("bytes of memories are mapped", Total::Mappable, 32 << 20) };
/// Descriptors of fences, of memory of devices while it is mapped, and of what memory is known again by. One execution may wait
/// for 64 fences, and has two of its own; a client may have thousands that wait, so one may take half of all.
pub const DESCRIPTORS: Limit = Limit {
    parts: 2,
    ..Limit::new("descriptors of fences and of devices' memory are held", Total::Descriptors(2), 66)
};
/// Counted apart from fences, so that files which wait to be rewritten do not take the fences' room.
pub const CACHE_FILES: Limit = Limit::new("cache files are open", Total::Descriptors(8), 4);
/// Descriptors of memories and models, which a backend's process gets again when it is started again.
pub const LENT: Limit =
    Limit::new("descriptors are lent to the backend's process", Total::Descriptors(16), 64);
/// Executions whose memory could not be lent and is copied while they run, and submitted ones that wait on a thread of their own
/// for a process that is not there, or has too much to read. A call waits for a permit; a submission would need such a thread
/// for that, and is refused.
pub const COPIED: Limit =
    Limit::new("executions have memory copied or wait for the backend's process", Total::Count(256), 4);
/// Those that have a thread of the backend's process each. What comes when a client has no more is handed to the backend, which has
/// it wait as it does without that process.
pub const RUNS: Limit = Limit::new("executions have a thread of the backend's process", Total::Count(64), 2);
/// Submitted executions over memory that a device may be at: each has a thread, which waits for that.
pub const BUSY: Limit = Limit::new("submitted executions may wait for their memory", Total::Count(256), 4);
/// Each has a thread.
pub const FMQ_BURSTS: Limit = Limit::new("bursts over queues are open", Total::Count(128), 2);
/// Reusable executions, callbacks of fenced ones, and contexts of bursts over queues: a client may keep as many as it likes,
/// and they need no memory of its.
pub const OBJECTS: Limit = Limit::new("objects of executions are alive", Total::Count(1 << 16), 256);
/// Each holds the model that it compiles, also a job that finishes a model in the background.
pub const JOBS: Limit = Limit::new("compilations wait or run", Total::Count(256), 2);

/// Connections over sockets, each with a thread. A session takes up to twice 16.
pub const CONNECTIONS: Limit = Limit::new("connections are open", Total::Count(1024), 16);
/// Bytes of calls over sockets that have come in part, or are being served. What the binder crate reads out of a byte takes up to 17: an
/// operand has 8 bytes where a message says nothing of it, and 136 once it is read. While it reads a list it sets aside up to four
/// times that, and more for a list of lists, and the process ends where it cannot. That is once for each message that is read just now.
pub const CALL_BYTES: Limit =
    Limit::new("bytes of calls are held", Total::Memory { part: 128, most: 256 << 20 }, 256 << 10);
/// Descriptors in such calls; one may have 64.
pub const CALL_DESCRIPTORS: Limit = Limit::new("descriptors of calls are held", Total::Descriptors(4), 64);

/// All of them.
pub const LIMITS: [Limit; 19] = [
    CALLBACKS,
    EXECUTIONS,
    CHECKS,
    JOBS,
    MODELS,
    MAPPINGS,
    LARGE_BUFFERS,
    MAPPED_BYTES,
    DESCRIPTORS,
    CACHE_FILES,
    LENT,
    COPIED,
    RUNS,
    BUSY,
    FMQ_BURSTS,
    OBJECTS,
    CONNECTIONS,
    CALL_BYTES,
    CALL_DESCRIPTORS,
];

#[cfg(test)]
mod tests {
    use super::*;

    /// A limit as docs/SECURITY.md has it.
    fn row(limit: &Limit) -> String {
        let total = match limit.total {
            Total::Count(count) => count.to_string(),
            Total::Descriptors(parts) => format!("1/{parts} of RLIMIT_NOFILE"),
            Total::Mappable => "1/2 of the addresses, or 32 times the memory".to_owned(),
            Total::Memory { part, most } => format!("1/{part} of the memory, or {most}"),
        };
        let alone = match limit.total {
            Total::Count(count) => (count / limit.parts).to_string(),
            Total::Descriptors(parts) => format!("1/{} of RLIMIT_NOFILE", parts * limit.parts),
            Total::Mappable | Total::Memory { .. } => format!("1/{} of that", limit.parts),
        };
        format!("| {} | {total} | {alone} | {} |", limit.what, limit.floor)
    }

    #[test]
    fn the_document_has_these_limits() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/SECURITY.md");
        let text = std::fs::read_to_string(path).unwrap();
        let rows: Vec<String> = LIMITS.iter().map(row).collect();
        let start = text.find(&rows[0]).unwrap_or_else(|| panic!("{path} needs the row {}", rows[0]));
        let table: Vec<&str> = text[start..].lines().take_while(|line| line.starts_with('|')).collect();
        assert_eq!(table, rows, "{path} has other limits than the code");
    }

    #[test]
    fn mappings_leave_a_quarter_of_what_a_process_may_have() {
        const MAX_MAP_COUNT: u64 = 65_530; // as Linux has it unless told otherwise
        let device_buffers = 8192;
        assert!(MAPPINGS.total() + LARGE_BUFFERS.total() + device_buffers <= MAX_MAP_COUNT / 4 * 3);
    }

    #[test]
    fn each_leaves_room_for_whom_it_promises_to_serve() {
        for limit in LIMITS {
            let quota = limit.quota();
            assert!(quota.floor() <= quota.per_client(), "{limit:?}: {quota:?}");
            // Five clients take all that they can get: the sixth is served.
            let hog = |client| std::iter::from_fn(move || Some(client));
            let permits: Vec<_> = (0..5)
                .flat_map(|client| hog(client).map_while(|client| quota.take(client, quota.floor()).ok()))
                .collect();
            assert!(quota.take(99, quota.floor()).is_ok(), "{limit:?}: {} permits are out", permits.len());
        }
    }
}
