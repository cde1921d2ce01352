//! How much memory this process may use: the machine's, or less where its cgroup or its limits say so.
//!
//! A kernel that has no more for a cgroup kills a process in it, as it does where the machine has no more.
//!
//! Android's policy lets a HAL write the files of cgroups and not read them: there a cgroup's limit is followed only where a
//! vendor's policy allows the daemon to read it.

use nix::sys::resource::{getrlimit, Resource};
use nix::unistd::{sysconf, SysconfVar};
use std::path::{Path, PathBuf};

/// Where the hierarchies of cgroups are: of version 2, and of version 1 for memory. The last is Android's.
const UNIFIED: &str = "/sys/fs/cgroup";
const OF_MEMORY: [&str; 2] = ["/sys/fs/cgroup/memory", "/dev/memcg"];

/// Memory that this process may use, in bytes; a guess where nobody tells. Of addresses that are limited it may use half: clients' memory,
/// stacks of threads and what the allocator sets aside take them, too, and the process ends where small blocks find none.
pub fn machine_bytes() -> usize {
    if cfg!(miri) {
        return 1 << 30; // its machine has neither memory nor limits to ask for
    }
    let of = |var| sysconf(var).ok().flatten().and_then(|n| u64::try_from(n).ok());
    let memory = of(SysconfVar::_PHYS_PAGES).zip(of(SysconfVar::PAGE_SIZE));
    let machine = memory.map_or(1 << 30, |(pages, size)| pages.saturating_mul(size));
    let cgroups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let of_cgroups = limit_files(&cgroups).filter_map(|path| limit_in(&path));
    let least = of_cgroups.chain(address_space().map(|all| all / 2)).fold(machine, u64::min);
    usize::try_from(least).unwrap_or(usize::MAX)
}

/// Bytes of clients' memory that this process may have mapped at once: half of the addresses that there are, a quarter where they are
/// limited, and so many times the memory that page tables, of which a page of memory takes a 512th, take a sixteenth of it.
pub fn mappable_bytes() -> u64 {
    /// What every kernel leaves to a process: 64-bit Arm has the fewest, with pages of three levels.
    const ADDRESSES: u64 = if cfg!(target_pointer_width = "64") { 1 << 39 } else { 3 << 30 };
    const TIMES_MEMORY: u64 = 512 / 16;
    let memory = machine_bytes() as u64;
    let addresses = if cfg!(miri) { None } else { address_space() };
    let limited = addresses.map_or(u64::MAX, |limit| limit / 4);
    limited.min(ADDRESSES / 2).min(memory.saturating_mul(TIMES_MEMORY))
}

/// How much this process may map.
fn address_space() -> Option<u64> {
    let (soft, _) = getrlimit(Resource::RLIMIT_AS).ok()?;
    #[allow(clippy::useless_conversion)] // rlim_t has 32 bits on 32-bit Android
    Some(u64::from(soft))
}

/// The files that limit the memory of a process in these cgroups, of all above them as well. Not all have to exist.
fn limit_files(cgroups: &str) -> impl Iterator<Item = PathBuf> + '_ {
    cgroups.lines().flat_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { return Vec::new() };
        let (roots, name) = match controllers {
            "" => (&[UNIFIED][..], "memory.max"),
            of if of.split(',').any(|controller| controller == "memory") => {
                (&OF_MEMORY[..], "memory.limit_in_bytes")
            }
            _ => (&[][..], ""),
        };
        let path = Path::new(path.trim_start_matches('/'));
        let files = |root| path.ancestors().map(move |path| Path::new(root).join(path).join(name));
        roots.iter().flat_map(files).collect()
    })
}

/// `None` where there is no such file, or it sets no limit.
fn limit_in(file: &Path) -> Option<u64> {
    std::fs::read_to_string(file).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limits_of_all_cgroups_above_are_looked_at() {
        let files = |text: &str| limit_files(text).map(|path| path.display().to_string()).collect::<Vec<_>>();
        let unified =
            ["/sys/fs/cgroup/a/b/memory.max", "/sys/fs/cgroup/a/memory.max", "/sys/fs/cgroup/memory.max"];
        assert_eq!(files("0::/a/b\n"), unified);
        let first = [
            "/sys/fs/cgroup/memory/x/memory.limit_in_bytes",
            "/sys/fs/cgroup/memory/memory.limit_in_bytes",
            "/dev/memcg/x/memory.limit_in_bytes",
            "/dev/memcg/memory.limit_in_bytes",
        ];
        assert_eq!(files("5:cpu,memory:/x\n4:cpuset:/y\n"), first);
        assert_eq!(files("no cgroups"), [""; 0]);
    }

    #[test]
    fn a_limit_is_a_number_or_none() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("memory.max");
        assert_eq!(limit_in(&file), None);
        for (text, limit) in [("max\n", None), ("1048576\n", Some(1 << 20)), ("", None)] {
            std::fs::write(&file, text).unwrap();
            assert_eq!(limit_in(&file), limit);
        }
        assert!(machine_bytes() > 1 << 20);
    }

    #[test]
    fn what_may_be_mapped_leaves_addresses_and_memory() {
        let (mappable, memory) = (mappable_bytes(), machine_bytes() as u64);
        assert!(mappable <= 1 << 38 && mappable / 512 <= memory / 16, "{mappable} bytes beside {memory}");
    }
}
