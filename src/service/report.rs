//! What the driver tells of itself: its state as a report, all of it or what concerns one client.
//!
//! Nothing of what clients compute is in it, and its length is bounded. Making it waits for nobody: locks are held only
//! to copy some numbers, and no device and no disk is asked.

use super::core::{version, Core};
use crate::aidl::{DIAGNOSTICS_VERSION, INTERFACE_HASH, INTERFACE_VERSION};
use crate::compiler::Counts;
use crate::quota::Quota;
use crate::scheduler::Load;
use crate::statistics::{CacheCounts, ClientCounts, PreparedCounts, Totals, Value};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The report has an entry for so many clients, for so many prepared models of one, and for so many of all.
const MOST_CLIENTS: usize = 32;
const MOST_MODELS_OF_ONE: usize = 8;
const MOST_MODELS: usize = 64;
/// Processes of one client.
const MOST_PROCESSES: usize = 16;

/// How much somebody is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum View {
    All,
    /// What concerns the client with this uid.
    Of(u32),
}

impl View {
    /// Root, system and shell administer the device.
    const ADMINISTRATORS: [u32; 3] = [0, 1000, 2000];

    /// What a caller with this uid may see of a driver whose process has the uid `own`.
    pub fn of(uid: u32, own: u32) -> Self {
        match uid == own || Self::ADMINISTRATORS.contains(&uid) {
            true => View::All,
            false => View::Of(uid),
        }
    }
}

/// The report. A client hears of itself alone, and of what is the same on every machine.
pub(super) fn report(core: &Core, view: View) -> Value {
    let interface = Value::fields([
        ("version", Value::from(INTERFACE_VERSION.unsigned_abs())),
        ("hash", INTERFACE_HASH.into()),
        ("diagnostics", DIAGNOSTICS_VERSION.unsigned_abs().into()),
    ]);
    let mut fields = vec![("driver", version(&core.info).into()), ("interface", interface)];
    match view {
        View::All => {
            fields.push(("view", "all".into()));
            fields.extend(of_driver(core));
        }
        View::Of(uid) => {
            fields.push(("view", "own".into()));
            let mut known = core.clients.counts(Some(uid));
            let own = known.pop().unwrap_or(ClientCounts { uid, ..ClientCounts::default() });
            fields.push(("clients", [client(core, &own, MOST_MODELS_OF_ONE)].into_iter().collect()));
        }
    }
    Value::fields(fields)
}

/// The part for callers that may see everything.
fn of_driver(core: &Core) -> Vec<(&'static str, Value)> {
    let clients = core.clients.counts(None);
    let mut totals = core.clients.others();
    clients.iter().for_each(|client| totals.add(&client.executions));
    let mut models = MOST_MODELS;
    let told = clients.iter().take(MOST_CLIENTS).map(|counts| {
        let most = models.min(MOST_MODELS_OF_ONE);
        models -= most.min(counts.models.len());
        client(core, counts, most)
    });
    let told: Value = told.collect();
    vec![
        ("backend", core.info.version.as_str().into()),
        ("process", std::process::id().into()),
        ("up_time_s", core.started.elapsed().as_secs().into()),
        ("executions", executions(&totals)),
        ("clients", told),
        ("clients_left_out", clients.len().saturating_sub(MOST_CLIENTS).into()),
        ("queues", queues(core)),
        ("caches", caches(core)),
        ("quotas", quotas(core).map(|(what, quota)| limit(what, &quota)).collect()),
        ("errors", errors(core)),
    ]
}

fn client(core: &Core, counts: &ClientCounts, most_models: usize) -> Value {
    let held = quotas(core).filter_map(|(what, quota)| {
        let held = quota.held_by(counts.uid);
        (held > 0).then(|| (what, Value::from(held)))
    });
    let models = counts.models.iter();
    Value::fields([
        ("uid", counts.uid.into()),
        ("processes", counts.processes.iter().take(MOST_PROCESSES).copied().collect()),
        ("prepared_models", counts.models.len().into()),
        ("prepared_ever", counts.prepared.into()),
        ("bursts", counts.bursts.into()),
        ("holds", Value::fields(held.collect::<Vec<_>>())),
        ("executions", executions(&counts.executions)),
        ("models", models.take(most_models).map(|counts| prepared_model(counts)).collect()),
        ("models_left_out", counts.models.len().saturating_sub(most_models).into()),
    ])
}

fn prepared_model(counts: &PreparedCounts) -> Value {
    let known = [
        ("model".to_string(), counts.id.into()),
        ("process".to_string(), counts.process.into()),
        ("bursts".to_string(), counts.bursts().into()),
    ];
    match executions(&counts.executions.totals()) {
        Value::Fields(executions) => Value::Fields(known.into_iter().chain(executions).collect()),
        other => other,
    }
}

fn executions(totals: &Totals) -> Value {
    let times = &totals.times;
    let buckets = times.buckets().map(|(bound, count)| (bound.to_string(), count.into()));
    Value::fields([
        ("succeeded", times.count().into()),
        ("failed", totals.failed.into()),
        ("under_way", totals.under_way.into()),
        ("mean_us", times.mean_us().into()),
        ("p50_below_us", times.below_us(500).into()),
        ("p90_below_us", times.below_us(900).into()),
        ("p99_below_us", times.below_us(990).into()),
        ("times_below_us", Value::fields(buckets)),
    ])
}

fn queues(core: &Core) -> Value {
    let lines = [
        ("compilations", Some(core.compiler.load())),
        ("device", core.queue()),
        ("backend", core.backend.load_now()),
    ];
    let load = |Load { waiting, running }: Load| {
        Value::fields([("waiting", waiting.into()), ("running", running.into())])
    };
    Value::fields(lines.into_iter().filter_map(|(name, line)| Some((name, load(line?)))))
}

fn caches(core: &Core) -> Value {
    let Counts { files, store } = core.compiler.counts();
    let tally = |counts: BTreeMap<&'static str, u64>| {
        Value::fields(counts.into_iter().map(|(why, count)| (why, count.into())))
    };
    let fields = |counts: &CacheCounts| {
        vec![
            ("hits", counts.hits().into()),
            ("misses", tally(counts.misses())),
            ("saves", counts.saves().into()),
            ("failed_saves", tally(counts.failed_saves())),
        ]
    };
    let mut caches = vec![("client_files", Value::fields(fields(files)))];
    if let Some(kept) = core.compiler.store() {
        let (models, bytes) = kept.size().unzip();
        let size =
            [("models", models.into()), ("bytes", bytes.into()), ("most_bytes", kept.most_bytes().into())];
        caches.push(("store", Value::fields(fields(store).into_iter().chain(size))));
    }
    Value::fields(caches)
}

/// Everything that is shared out, by what it is called.
fn quotas(core: &Core) -> impl Iterator<Item = (&'static str, Arc<Quota>)> + '_ {
    let private = ("bytes of private memory are held", core.budget.private().clone());
    let buffers = core.buffers.quotas();
    let transport = core.transport_quotas();
    core.quotas
        .all()
        .into_iter()
        .chain([core.compiler.jobs()])
        .chain(buffers)
        .chain(transport)
        .chain([private])
}

fn limit(what: &str, quota: &Quota) -> Value {
    Value::fields([
        ("what", what.into()),
        ("held", quota.held().into()),
        ("in_all", quota.total().into()),
        ("of_one_client", quota.per_client().into()),
        ("of_any_client", quota.floor().into()),
    ])
}

fn errors(core: &Core) -> Value {
    let counts = core.errors.counts().into_iter().map(|(status, count)| (status, count.into()));
    let last = core.errors.last().into_iter().map(|noted| {
        Value::fields([
            ("call", noted.call.into()),
            ("status", noted.status.into()),
            ("reason", noted.reason.into()),
            ("count", noted.count.into()),
            ("seconds_ago", noted.at.elapsed().as_secs().into()),
        ])
    });
    Value::fields([("counts", Value::fields(counts)), ("last", last.collect())])
}

#[cfg(test)]
mod tests {
    use super::super::Driver;
    use super::*;
    use crate::backend::cpu::CpuBackend;
    use crate::statistics::{Clients, Listed, Running};
    use std::time::Instant;

    fn driver() -> Driver {
        Driver::builder(Arc::new(CpuBackend::new(1).unwrap())).build().unwrap()
    }

    /// A prepared model of `client` that was executed once.
    fn used(clients: &Arc<Clients>, client: u32) -> Listed {
        let model = clients.list(client, Some(4_000_000 + client));
        Running::new(&*model.executions, Instant::now()).succeeded();
        model
    }

    fn names(report: &Value) -> Vec<&str> {
        match report {
            Value::Fields(fields) => fields.iter().map(|(name, _)| name.as_str()).collect(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_foreign_client_sees_itself_and_nothing_of_others() {
        let driver = driver();
        let core = driver.core();
        let _models = [10_001, 10_001, 10_002].map(|uid| used(&core.clients, uid));
        let _held = [10_001, 10_002].map(|uid| core.quotas.model(uid).unwrap());
        core.errors.note("a call of another", "GENERAL_FAILURE", "for its reasons");
        let report = report(core, View::Of(10_001));
        assert_eq!(names(&report), ["driver", "interface", "view", "clients"]);
        let text = report.json();
        assert!(
            text.contains(r#""clients":[{"uid":10001,"processes":[4010001],"prepared_models":2"#),
            "{text}"
        );
        assert!(text.contains(r#""holds":{"prepared models are alive":1}"#), "{text}");
        assert!(!text.contains("10002"), "{text}");
        // A client without models sees that it has none.
        let stranger = super::report(core, View::Of(10_003)).json();
        assert!(stranger.contains(r#""uid":10003,"processes":[],"prepared_models":0"#), "{stranger}");
        assert!(!stranger.contains("10001") && !stranger.contains("10002"), "{stranger}");
        let all = super::report(core, View::All);
        assert!(all.json().contains("10002") && all.json().contains("a call of another"), "{}", all.json());
    }

    #[test]
    fn a_report_has_a_bound_whatever_clients_there_are() {
        let driver = driver();
        let core = driver.core();
        let models: Vec<_> = (0..200).flat_map(|uid| (0..40).map(move |_| uid)).collect();
        let models: Vec<_> = models.into_iter().map(|uid| used(&core.clients, uid)).collect();
        (0..1000).for_each(|i| core.errors.note("a call", "GENERAL_FAILURE", &"x ".repeat(i)));
        for view in [View::All, View::Of(7)] {
            let text = super::report(core, view).json();
            assert!(text.len() < 100_000, "{} bytes", text.len());
        }
        let text = super::report(core, View::All).text();
        assert!(text.contains("clients left out: 168\n") && text.contains("models left out: 32\n"), "{text}");
        drop(models);
    }

    #[test]
    fn administrators_and_the_driver_itself_see_all_and_others_themselves() {
        for uid in [0, 1000, 2000, 10_123] {
            assert_eq!(View::of(uid, 10_123), View::All, "{uid}");
        }
        for uid in [1, 999, 1001, 2001, 10_122, u32::MAX] {
            assert_eq!(View::of(uid, 10_123), View::Of(uid));
        }
    }
}
