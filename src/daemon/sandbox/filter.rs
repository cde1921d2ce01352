//! The daemon's filter of system calls: made of the lists, put upon all threads, and its refusals logged.

use super::calls::*;
use super::narrowed::{narrowed, unwanted_clones};
use super::processes::Processes;
use crate::memory::{refuse_trapped_calls, Traps};
use seccompiler::{
    apply_filter_all_threads, BackendError, BpfProgram, Error, SeccompAction, SeccompFilter, TargetArch,
};
use std::collections::BTreeMap;

/// Why calls are not filtered.
#[derive(Debug, thiserror::Error)]
pub enum FilterError {
    #[error("the filter cannot be made: {0}")]
    Make(BackendError),
    #[error("the kernel does not take the filter: {0}")]
    Apply(Error),
    #[error("refusals cannot be told: {0}")]
    Tell(std::io::Error),
}

/// Puts the filters upon all threads of this process. How many calls they let pass, some only with some arguments.
pub fn apply(processes: Processes) -> Result<usize, FilterError> {
    let Filters { refusing, quiet, count } = Filters::new(processes).map_err(FilterError::Make)?;
    // The handler comes first: without it a refusal ends the process, and nothing would tell why.
    tell(refuse_trapped_calls().map_err(FilterError::Tell)?).map_err(FilterError::Tell)?;
    // In this order: under the last no other can be put upon it.
    for filter in quiet.iter().chain([&refusing]) {
        apply_filter_all_threads(filter).map_err(FilterError::Apply)?;
    }
    Ok(count)
}

/// Filters that hold all at once: the severest has it.
struct Filters {
    /// Traps what is on no list.
    refusing: BpfProgram,
    /// Have calls give an error that come where signals are blocked: there a trap would end the process.
    quiet: [BpfProgram; 2],
    count: usize,
}

impl Filters {
    fn new(processes: Processes) -> Result<Self, BackendError> {
        let architecture = TargetArch::try_from(std::env::consts::ARCH)?;
        let program = |rules, other, these| -> Result<BpfProgram, BackendError> {
            SeccompFilter::new(rules, other, these, architecture)?.try_into()
        };
        let error = |rules, errno| program(rules, SeccompAction::Allow, SeccompAction::Errno(errno as u32));
        // Libraries that make threads by `clone3` use `clone` where the kernel has no `clone3`.
        let not_there = error(BTreeMap::from([(libc::SYS_clone3, Vec::new())]), libc::ENOSYS)?;
        let no_process = error(unwanted_clones(processes)?.into_iter().collect(), libc::EPERM)?;
        let lists = [CALLS, FORKS, OLD_CALLS, OF_THE_LIBRARY, OF_A_CRASH];
        let of_a_start = [TO_START_A_PROCESS, TO_START_A_PROCESS_OLD];
        let of_a_start = of_a_start.into_iter().filter(|_| processes == Processes::Starts);
        let plain = lists.into_iter().chain(of_a_start).flatten().map(|&call| (call, Vec::new()));
        let rules: BTreeMap<_, _> =
            narrowed(processes, std::process::id())?.into_iter().chain(plain).collect();
        let count = rules.len();
        let refusing = program(rules, SeccompAction::Trap, SeccompAction::Allow)?;
        Ok(Filters { refusing, quiet: [not_there, no_process], count })
    }
}

/// Has a thread log what is refused.
fn tell(traps: Traps) -> std::io::Result<()> {
    let thread = std::thread::Builder::new().name("nnhal-refusals".into());
    let log = move || {
        let own = nix::unistd::gettid().as_raw();
        // It ends only with the process.
        for trapped in traps {
            // To tell of what telling takes would have no end.
            if trapped.thread != own {
                log::error!(
                    "system call {} of thread {} ({}) is refused: it is not on the sandbox's list",
                    trapped.call,
                    trapped.thread,
                    trapped.name()
                );
            }
        }
    };
    thread.spawn(log).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn who_starts_processes_may_more() {
        let [none, starts] =
            [Processes::None, Processes::Starts].map(|p| Filters::new(p).expect("made").count);
        assert!(none < starts, "{none} and {starts}");
    }

    /// A call on two lists could be narrowed by one and be let pass by the other.
    #[test]
    fn each_call_is_on_one_list() {
        for processes in [Processes::None, Processes::Starts] {
            let mut calls: Vec<_> = [
                CALLS,
                FORKS,
                OLD_CALLS,
                OF_THE_LIBRARY,
                OF_A_CRASH,
                TO_START_A_PROCESS,
                TO_START_A_PROCESS_OLD,
            ]
            .concat();
            calls.extend(narrowed(processes, 1).expect("made").into_iter().map(|(call, _)| call));
            if processes == Processes::None {
                // The one that is narrowed here, and free to who starts processes.
                calls.retain(|&call| !TO_START_A_PROCESS_OLD.contains(&call));
            }
            let mut seen = HashSet::new();
            let twice: Vec<_> = calls.into_iter().filter(|&call| !seen.insert(call)).collect();
            assert!(twice.is_empty(), "{twice:?}");
        }
    }
}
