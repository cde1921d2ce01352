//! Which connections go where there is no room for others.
//!
//! Sessions and the objects that they hold are the binder crate's own, and it does not tell of one session what it has. So
//! idle is what a whole process is: a session's connections are of one process, most of them unused by a client that is well.

use nix::sys::resource::{getrlimit, Resource};
use std::collections::HashMap;
use std::time::Duration;

/// A connection as it looks from outside.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    pub key: u64,
    pub uid: u32,
    pub process: i32,
    /// How long nothing was served by it; `None` while something is.
    pub quiet: Option<Duration>,
}

/// Those of clients with more than `most` connections whose processes had nothing served for as long as `after`: so many
/// that `most` are left of each client, the longest idle first.
pub fn idle(seen: &[Seen], most: usize, after: Duration) -> Vec<u64> {
    let mut counts: HashMap<u32, usize> = HashMap::new();
    // By process: how long it was quiet, all of its connections taken together.
    let mut quiet: HashMap<i32, Option<Duration>> = HashMap::new();
    for connection in seen {
        *counts.entry(connection.uid).or_default() += 1;
        let least = quiet.entry(connection.process).or_insert(connection.quiet);
        *least = (*least).min(connection.quiet);
    }
    let mut idle: Vec<_> = seen
        .iter()
        .filter_map(|connection| Some((quiet.get(&connection.process).copied()??, connection)))
        .filter(|(time, _)| *time >= after)
        .collect();
    idle.sort_by_key(|(time, connection)| (std::cmp::Reverse(*time), connection.key));
    let over = |(_, connection): (Duration, &Seen)| {
        let count = counts.get_mut(&connection.uid)?;
        let is_over = *count > most;
        *count -= usize::from(is_over);
        is_over.then_some(connection.key)
    };
    idle.into_iter().filter_map(over).collect()
}

/// The longest quiet connection of the client that holds the most descriptors, of those `held`. Where that one has no connection
/// any more none is to be closed: others do not pay for what it holds.
pub fn worst(seen: &[Seen], held: &HashMap<u32, u64>) -> Option<u64> {
    let (&uid, _) = held.iter().max_by_key(|(&uid, &count)| (count, uid))?;
    let of_it = seen.iter().filter(|connection| connection.uid == uid);
    of_it.max_by_key(|connection| connection.quiet).map(|connection| connection.key)
}

/// Whether nine in ten of the descriptors that this process may have are in use.
pub fn descriptors_are_short() -> bool {
    let Ok((limit, _)) = getrlimit(Resource::RLIMIT_NOFILE) else { return false };
    #[allow(clippy::useless_conversion)] // rlim_t has 32 bits on 32-bit Android
    let limit = u64::from(limit);
    in_use().is_some_and(|count| count >= limit / 10 * 9)
}

fn in_use() -> Option<u64> {
    const LIST: &str = "/proc/self/fd";
    // From Linux 6.2 on the list is as long as it has entries.
    match std::fs::metadata(LIST).ok()?.len() {
        0 => Some(std::fs::read_dir(LIST).ok()?.count() as u64),
        count => Some(count),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(key: u64, uid: u32, process: i32, quiet: Option<u64>) -> Seen {
        Seen { key, uid, process, quiet: quiet.map(Duration::from_secs) }
    }

    #[test]
    fn connections_of_idle_processes_go_until_a_client_has_half() {
        let all = [
            // A client of three processes: two idle, one with a call under way on one of two connections.
            seen(1, 7, 70, Some(400)),
            seen(2, 7, 70, Some(900)),
            seen(3, 7, 71, Some(600)),
            seen(4, 7, 72, Some(900)),
            seen(5, 7, 72, None),
            // One who has few.
            seen(6, 8, 80, Some(9000)),
        ];
        let after = Duration::from_secs(300);
        assert!(idle(&all, 5, after).is_empty());
        assert_eq!(idle(&all, 4, after), [3], "the process that was idle for longest");
        assert_eq!(idle(&all, 1, after), [3, 1, 2], "and never one that is served");
        assert_eq!(idle(&all, 0, Duration::from_secs(1000)), [6]);
    }

    #[test]
    fn the_client_that_has_the_most_loses_one_that_it_does_not_use() {
        let all = [seen(1, 7, 70, None), seen(2, 7, 70, Some(1)), seen(3, 8, 80, Some(5))];
        assert_eq!(worst(&all, &HashMap::from([(7, 2), (8, 1)])), Some(2));
        assert_eq!(worst(&all, &HashMap::from([(7, 2), (8, 10)])), Some(3));
        assert_eq!(worst(&all, &HashMap::from([(7, 2), (9, 10)])), None, "it has none that could be closed");
        assert_eq!(worst(&[], &HashMap::new()), None);
    }

    #[test]
    fn descriptors_are_counted() {
        let before = in_use().unwrap();
        let files: Vec<_> = (0..64).map(|_| std::fs::File::open("/dev/null").unwrap()).collect();
        // Other tests open and close some meanwhile.
        assert!(in_use().unwrap() >= 64.max(before / 2) && !descriptors_are_short());
        drop(files);
    }
}
