//! Clients that connect without end. The kernel has one line for all who connect, so each of theirs has to be accepted, too, but only
//! so fast: a client that has to wait connects no sooner.
//!
//! It must not know what is done with a connection.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// So often in a second a client may connect as fast as it can: a session has up to twenty connections.
const MANY: u32 = 256;
const SECOND: Duration = Duration::from_secs(1);
/// For so long nothing is accepted after each further connection.
pub const PAUSE: Duration = Duration::from_micros(50);

/// How often each client has connected.
pub struct Floods {
    /// Since then.
    start: Instant,
    by_client: HashMap<u32, u32>,
}

impl Floods {
    pub fn new(now: Instant) -> Self {
        Floods { start: now, by_client: HashMap::new() }
    }

    /// Notes that `client` connects; whether it does so without end.
    pub fn note(&mut self, client: u32, now: Instant) -> bool {
        if now.saturating_duration_since(self.start) >= SECOND {
            *self = Floods::new(now);
        }
        let count = self.by_client.entry(client).or_default();
        *count = count.saturating_add(1);
        *count > MANY
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_connects_without_end_is_told_from_others_and_forgotten_after_a_second() {
        let start = Instant::now();
        let mut floods = Floods::new(start);
        let mut connects = |client, at| floods.note(client, start + at);
        assert!((0..MANY).all(|_| !connects(1, Duration::ZERO)));
        assert!(connects(1, SECOND / 2));
        assert!(!connects(2, SECOND / 2), "another client does not");
        assert!(!connects(1, SECOND));
    }
}
