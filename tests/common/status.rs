//! What a driver tells of itself.

use super::{Harness, PATIENCE};
use nnhal::client::Driver;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Another connection to the driver, by which it is asked.
pub fn connect(harness: &Harness) -> Driver {
    harness.connect().driver
}

/// The driver's state, as JSON.
pub fn status(driver: &Driver) -> serde_json::Value {
    let text = driver.diagnostics().expect("an answer").expect("the extension").status().expect("a status");
    serde_json::from_str(&text).unwrap_or_else(|why| panic!("{why}: {text}"))
}

/// Asks until `is_so` holds of the driver's state: releases of a client take their time.
#[track_caller]
pub fn soon(driver: &Driver, what: &str, is_so: impl Fn(&serde_json::Value) -> bool) -> serde_json::Value {
    let start = Instant::now();
    loop {
        let status = status(driver);
        if is_so(&status) {
            return status;
        }
        assert!(start.elapsed() < PATIENCE, "{what}: {status}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// What the first client holds, by what that is called, but for what its connections and their calls do.
pub fn held(status: &serde_json::Value) -> BTreeMap<&str, u64> {
    let held = status["clients"][0]["holds"].as_object().into_iter().flatten();
    let held = held.map(|(what, held)| (what.as_str(), held.as_u64().expect("a number")));
    held.filter(|(what, _)| !what.contains("connections") && !what.contains("of calls")).collect()
}

/// What the first client holds now.
pub fn holding(driver: &Driver) -> BTreeMap<String, u64> {
    held(&status(driver)).into_iter().map(|(what, held)| (what.to_string(), held)).collect()
}

/// Waits until the first client holds no more than `before`.
#[track_caller]
pub fn assert_back(driver: &Driver, before: &BTreeMap<String, u64>, what: &str) {
    soon(driver, &format!("{what} are held still, over {before:?}"), |status| {
        held(status).into_iter().all(|(what, held)| before.get(what).is_some_and(|before| held <= *before))
    });
}
