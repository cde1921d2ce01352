//! `nnhal cache` as people and scripts use it: what it prints, its exit codes, and that it makes nothing.
use nnhal::cache::{Cache, CacheFiles, Content, Key, Parts, Store};
use nnhal::memory::{AlignedBuf, Weights};
use nnhal::ops::NeverInterrupted;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

const DRIVER: &str = "a driver of the test's";

/// Runs the subcommand; gives its exit code, and what it printed to each side.
fn cache(command: &str, data: &Path) -> (i32, String, String) {
    let mut tool = Command::new(env!("CARGO_BIN_EXE_nnhal"));
    let output = tool.args(["cache", command, "--data"]).arg(data).env_remove("RUST_LOG").output();
    let Output { status, stdout, stderr } = output.expect("the tool starts");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (status.code().expect("an exit code"), text(stdout), text(stderr))
}

fn key(uid: u32, token: u8) -> Key {
    Key { uid, token: [token; 32] }
}

/// What is saved in one file of each kind.
struct One([Vec<u8>; 1], [Parts; 1]);

fn one(model: &[u8], data: &[(u64, Weights)]) -> One {
    One([model.to_vec()], [data.to_vec()])
}

impl One {
    fn content(&self) -> Content<'_> {
        Content { models: &self.0, data: &self.1 }
    }
}

fn data(len: usize) -> Vec<(u64, Weights)> {
    vec![(0, AlignedBuf::copy_of(&vec![7; len]).expect("memory").into())]
}

fn save(cache: &Cache, key: &Key) {
    let file = || tempfile::tempfile().expect("a file");
    let files = CacheFiles::new(&[file()], &[file()]).expect("files");
    cache.save(key, &files, one(b"all that steers", &data(100)).content(), &NeverInterrupted).expect("saved");
}

/// A data directory with two compilations of clients, and two in the store.
fn used() -> TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    let cache = Cache::new(Some(directory.path()), DRIVER);
    save(&cache, &key(10001, 0xa1));
    save(&cache, &key(10002, 0xb2));
    let store = Store::new(directory.path(), DRIVER, 1 << 20);
    store.save(&key(10001, 0xc3), one(b"a model", &data(5000)).content(), &NeverInterrupted).expect("stored");
    store.save(&key(10001, 0xd4), one(b"another", &data(200)).content(), &NeverInterrupted).expect("stored");
    directory
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = std::fs::read_dir(directory)
        .expect("it is there")
        .map(|file| file.expect("an entry").path())
        .collect();
    files.sort();
    files
}

/// The store's file of this kind for a token of such bytes.
fn stored(directory: &Path, token: &str, kind: &str) -> PathBuf {
    let name = format!("10001-{}.{kind}", token.repeat(32));
    directory.join("store").join(name)
}

#[test]
fn compilations_are_listed_the_last_used_first() {
    let directory = used();
    let (code, out, err) = cache("list", directory.path());
    assert_eq!((code, &err[..]), (0, ""), "{out}");
    let expected = "\
cache files of clients: 2 compilations, 310 bytes
  made by a driver of the test's
     age        uid token             model bytes   data bytes
       0      10002 b2b2b2b2b2b2b2b2           55          100
       1      10001 a1a1a1a1a1a1a1a1           55          100
the driver's own store: 2 compilations, 5294 bytes
  made by a driver of the test's
     age        uid token             model bytes   data bytes
       0      10001 d4d4d4d4d4d4d4d4           47          200
       1      10001 c3c3c3c3c3c3c3c3           47         5000
";
    assert_eq!(out, expected);
}

#[test]
fn a_part_that_was_never_used_is_said_to_be_so() {
    let directory = tempfile::tempdir().expect("a directory");
    save(&Cache::new(Some(directory.path()), DRIVER), &key(1, 1));
    let (code, out, _) = cache("list", directory.path());
    assert!(code == 0 && out.contains("the driver's own store: never used"), "{out}");
    assert_eq!(cache("verify", directory.path()).1, "1 compilation, nothing wrong\n");
    assert!(!directory.path().join("store").exists());
}

#[test]
fn whole_caches_verify_and_each_fault_is_a_line() {
    let directory = used();
    let path = directory.path();
    assert_eq!(cache("verify", path), (0, "4 compilations, nothing wrong\n".into(), String::new()));
    let flip = |file: &Path| {
        let file = std::fs::File::options().read(true).write(true).open(file).expect("it is there");
        let mut byte = [0];
        file.read_exact_at(&mut byte, 20).expect("read");
        file.write_all_at(&[byte[0] ^ 1], 20).expect("written");
    };
    let [model, values, other] =
        [("c3", "model"), ("c3", "data"), ("d4", "model")].map(|(token, kind)| stored(path, token, kind));
    flip(&model);
    flip(&values);
    std::fs::remove_file(&other).expect("it was there");
    let (code, out, err) = cache("verify", path);
    assert_eq!((code, &err[..], out.lines().count()), (1, "nnhal: 3 faults\n", 3), "{out}");
    for file in [model, values, other] {
        let name = file.display().to_string();
        assert_eq!(out.lines().filter(|line| line.starts_with(&name)).count(), 1, "{name}: {out}");
    }
    std::fs::write(stored(path, "d4", "data"), b"short").expect("written");
    let (code, out, _) = cache("verify", path);
    assert!(code == 1 && out.contains("bytes that were written"), "{out}");
}

#[test]
fn a_damaged_registry_is_a_fault() {
    let directory = used();
    let registry = directory.path().join("registry.redb");
    let whole = std::fs::read(&registry).expect("it is there");
    let mut seen = 0;
    // Wherever the entries are: all pages that hold anything, but for the header.
    for page in (4096..whole.len()).step_by(4096).filter(|&at| whole[at..at + 64].iter().any(|&b| b != 0)) {
        let mut damaged = whole.clone();
        damaged[page..page + 64].iter_mut().for_each(|byte| *byte ^= 0x55);
        std::fs::write(&registry, &damaged).expect("written");
        let (code, out, err) = cache("verify", directory.path());
        let said = format!("{out}{err}");
        match code {
            // A page that nothing refers to any more.
            0 => continue,
            _ => assert!(said.contains("registry.redb: it "), "{said}"),
        }
        seen += 1;
    }
    assert!(seen > 0, "no damage was noticed");
    std::fs::write(&registry, [7; 9000]).expect("written");
    let (code, _, err) = cache("verify", directory.path());
    assert!(code == 2 && err.contains("registry.redb: it is not a registry"), "{err}");
    assert_eq!(std::fs::read(&registry).expect("it is there"), [7; 9000], "it is left as it is");
}

#[test]
fn clearing_leaves_no_compilation_and_nothing_else_goes() {
    let directory = used();
    let path = directory.path();
    std::fs::write(path.join("store/notes.txt"), b"not the driver's").expect("written");
    let (code, out, err) = cache("clear", path);
    assert_eq!((code, &err[..]), (0, ""));
    assert_eq!(
        out,
        "cache files of clients: 2 compilations gone\nthe driver's own store: 2 compilations gone\n"
    );
    let left = files(&path.join("store"));
    assert_eq!(
        left,
        ["notes.txt", "registry.mark", "registry.redb"].map(|name| path.join("store").join(name))
    );
    assert_eq!(cache("verify", path).1, "0 compilations, nothing wrong\n");
    let store = Store::new(path, DRIVER, 1 << 20);
    assert!(store.load(&key(10001, 0xc3)).is_err());
}

#[test]
fn a_directory_that_is_no_drivers_stays_as_it_is() {
    let directory = tempfile::tempdir().expect("a directory");
    for path in [directory.path().to_path_buf(), directory.path().join("none")] {
        for command in ["list", "verify", "clear"] {
            let (code, out, err) = cache(command, &path);
            assert_eq!((code, &out[..]), (2, ""));
            assert_eq!(err, format!("nnhal: no driver has kept anything in {}\n", path.display()));
        }
    }
    assert_eq!(files(directory.path()), [""; 0].map(PathBuf::from));
}

#[test]
fn what_a_daemon_uses_is_left_alone() {
    let directory = used();
    let store = Store::new(directory.path(), DRIVER, 1 << 20);
    store.save(&key(10001, 0xe5), one(b"a third", &data(10)).content(), &NeverInterrupted).expect("stored");
    for command in ["list", "verify", "clear"] {
        let (code, out, err) = cache(command, directory.path());
        assert_eq!((code, &out[..]), (2, ""), "{command}");
        assert!(err.contains("store/registry.redb: it is in use by another process"), "{err}");
    }
    assert!(store.load(&key(10001, 0xe5)).is_ok());
}

#[test]
fn what_a_killed_daemon_left_is_listed() {
    let directory = used();
    let cache_of_daemon = Cache::new(Some(directory.path()), DRIVER);
    save(&cache_of_daemon, &key(10003, 0xf6));
    // As it is on disk in the middle of the daemon's life.
    let copy = tempfile::tempdir().expect("a directory");
    std::fs::copy(directory.path().join("registry.redb"), copy.path().join("registry.redb")).expect("copied");
    let (code, out, err) = cache("list", copy.path());
    assert_eq!((code, &err[..]), (0, ""));
    assert!(out.contains("3 compilations"), "{out}");
    assert_eq!(cache("verify", copy.path()).0, 0);
}

/// What the subcommand tells as JSON, with its exit code.
fn as_json(command: &str, data: &Path) -> (i32, serde_json::Value) {
    let mut tool = Command::new(env!("CARGO_BIN_EXE_nnhal"));
    let output = tool.args(["cache", command, "--json", "--data"]).arg(data).env_remove("RUST_LOG").output();
    let Output { status, stdout, .. } = output.expect("the tool starts");
    let text = String::from_utf8(stdout).expect("UTF-8");
    assert_eq!(text.lines().count(), 1, "{text}");
    (status.code().expect("an exit code"), serde_json::from_str(&text).expect("JSON"))
}

#[test]
fn scripts_are_told_the_same_as_json() {
    let directory = used();
    let (code, told) = as_json("list", directory.path());
    assert_eq!((code, &told["store"]["made_by"]), (0, &DRIVER.into()), "{told}");
    // With what tells which data belong to it.
    let model = std::fs::metadata(stored(directory.path(), "d4", "model")).expect("it is there").len();
    let kept = told["store"]["compilations"].as_array().expect("compilations");
    assert_eq!(
        kept[0],
        serde_json::json!({
            "uid": 10001, "token": "d4".repeat(32), "model_bytes": model, "data_bytes": 200
        })
    );
    let tokens = told["client_files"]["compilations"].as_array().expect("compilations").iter();
    assert_eq!(tokens.map(|c| c["token"].clone()).collect::<Vec<_>>(), ["b2".repeat(32), "a1".repeat(32)]);
    assert_eq!(
        as_json("verify", directory.path()),
        (0, serde_json::json!({ "compilations": 4, "faults": [] }))
    );
    let model = stored(directory.path(), "c3", "model");
    std::fs::remove_file(&model).expect("it is there");
    let (code, told) = as_json("verify", directory.path());
    let faults = told["faults"].as_array().expect("faults");
    assert_eq!((code, faults.len()), (1, 1), "{told}");
    assert!(
        faults[0].as_str().is_some_and(|fault| fault.starts_with(model.to_str().expect("UTF-8"))),
        "{told}"
    );
    assert_eq!(as_json("clear", directory.path()), (0, serde_json::json!({ "client_files": 2, "store": 2 })));
    let (_, told) = as_json("list", directory.path());
    assert_eq!(told["store"]["compilations"], serde_json::json!([]));
}
