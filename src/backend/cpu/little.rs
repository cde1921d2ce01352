//! Little cores: on a machine whose cores have several capacities, what is to save power runs on those that have the least. It
//! knows nothing of models.

use nix::sched::{sched_getaffinity, sched_setaffinity, CpuSet};
use nix::unistd::Pid;
use std::marker::PhantomData;
use std::path::Path;

/// Where Linux tells of each core. `cpu_capacity` is relative to the largest one's.
const CORES: &str = "/sys/devices/system/cpu";
/// This thread.
const THIS: Pid = Pid::from_raw(0);

/// Cores that have the least capacity.
pub struct LittleCores(CpuSet);

impl LittleCores {
    /// Those of this machine's cores that the process may use; `None` where all are alike, or Linux does not tell.
    pub fn of_machine() -> Option<Self> {
        // An interpreter has no cores.
        if cfg!(miri) {
            return None;
        }
        let capacities = capacities(Path::new(CORES))?;
        let little = least(&capacities)?;
        log::info!(
            "executions that are to save power run on cores {little:?}, which have the least capacity"
        );
        Self::of(&little)
    }

    /// These cores.
    pub fn of(cores: &[usize]) -> Option<Self> {
        let mut set = CpuSet::new();
        cores.iter().try_for_each(|&core| set.set(core)).ok()?;
        Some(LittleCores(set))
    }

    /// Moves this thread there, until what it gives is dropped. Where the kernel does not let it move, it stays.
    pub fn stay(&self) -> Stay {
        let before = sched_getaffinity(THIS).ok();
        let left = before.filter(|_| sched_setaffinity(THIS, &self.0).is_ok());
        Stay { left, thread: PhantomData }
    }
}

/// The stay of a thread on little cores.
pub struct Stay {
    /// The cores that it may use again; `None` if it was not moved.
    left: Option<CpuSet>,
    /// It is this thread's.
    thread: PhantomData<*const ()>,
}

impl Drop for Stay {
    fn drop(&mut self) {
        // Should none of them be there any more, it goes on here.
        let _ = self.left.map(|cores| sched_setaffinity(THIS, &cores));
    }
}

/// The cores of a set.
pub fn listed(cores: &CpuSet) -> Vec<usize> {
    (0..CpuSet::count()).filter(|&core| cores.is_set(core).unwrap_or(false)).collect()
}

/// The cores that the process may use, with their capacities.
fn capacities(root: &Path) -> Option<Vec<(usize, u32)>> {
    let ours = sched_getaffinity(Pid::this()).ok()?;
    let mut capacities = Vec::new();
    for core in listed(&ours) {
        let text = std::fs::read_to_string(root.join(format!("cpu{core}/cpu_capacity"))).ok()?;
        capacities.push((core, text.trim().parse().ok()?));
    }
    Some(capacities)
}

/// Those with the least capacity; `None` where all have the same.
fn least(capacities: &[(usize, u32)]) -> Option<Vec<usize>> {
    let least = capacities.iter().map(|core| core.1).min()?;
    let little: Vec<usize> = capacities.iter().filter(|core| core.1 == least).map(|core| core.0).collect();
    (little.len() < capacities.len()).then_some(little)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_with_the_least_capacity_are_little_ones() {
        assert_eq!(least(&[(0, 250), (1, 250), (4, 800), (7, 1024)]), Some(vec![0, 1]));
        assert_eq!(least(&[(0, 1024), (3, 446)]), Some(vec![3]));
        assert_eq!(least(&[(0, 1024), (1, 1024)]), None, "all are alike");
        assert_eq!(least(&[(2, 446)]), None, "the process may use no other");
        assert_eq!(least(&[]), None);
    }

    #[test]
    fn capacities_are_known_of_all_cores_or_none() {
        let root = tempfile::tempdir().unwrap();
        let ours = listed(&sched_getaffinity(Pid::this()).unwrap());
        let tell = |core: usize, text: &str| {
            let directory = root.path().join(format!("cpu{core}"));
            std::fs::create_dir_all(&directory).unwrap();
            std::fs::write(directory.join("cpu_capacity"), text).unwrap();
        };
        assert_eq!(capacities(root.path()), None, "nothing is told");
        ours.iter().for_each(|&core| tell(core, &format!("{}\n", core + 1)));
        let told: Vec<(usize, u32)> = ours.iter().map(|&core| (core, core as u32 + 1)).collect();
        assert_eq!(capacities(root.path()), Some(told));
        for wrong in ["", "-1\n", "many\n", "99999999999999999999\n"] {
            tell(ours[0], wrong);
            assert_eq!(capacities(root.path()), None, "{wrong:?}");
        }
    }

    #[test]
    fn a_thread_is_moved_and_comes_back() {
        let before = sched_getaffinity(THIS).unwrap();
        let little = LittleCores::of(&listed(&before)[..1]).unwrap();
        let stay = little.stay();
        assert_eq!(sched_getaffinity(THIS).unwrap(), little.0);
        drop(stay);
        assert_eq!(sched_getaffinity(THIS).unwrap(), before);
        // The machine has no such core, so the thread stays.
        let nowhere = LittleCores::of(&[CpuSet::count() - 1]).unwrap();
        let stay = nowhere.stay();
        assert_eq!(sched_getaffinity(THIS).unwrap(), before);
        drop(stay);
        assert_eq!(sched_getaffinity(THIS).unwrap(), before);
        assert!(LittleCores::of(&[CpuSet::count()]).is_none());
    }
}
