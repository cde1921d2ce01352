//! Two clients in processes of their own: what is one's, the other cannot use.

mod common;

use binder::Strong;
use common::caching::*;
use common::*;
use nnhal::aidl::*;
use std::fs::{File, OpenOptions, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitStatus};

/// Set for the other process: the token that it tries, or the directory of the cache.
const TOKEN: &str = "NNHAL_TEST_TOKEN";
const CACHE: &str = "NNHAL_TEST_CACHE";
/// Users that are nobody in particular.
const USERS: [u32; 2] = [54_321, 54_322];

/// Has another process of this program run its part, the ignored test `name`.
fn other_process(
    name: &str,
    harness: &Harness,
    set: impl FnOnce(&mut Command) -> &mut Command,
) -> ExitStatus {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--ignored", "--exact", "--nocapture", name]).env(SERVICE, harness.endpoint().to_string());
    set(&mut command).status().expect("started")
}

/// FLOOR of the buffer with this token.
fn use_token(model: &Strong<dyn IPreparedModel>, token: i32) -> ErrorStatus {
    let (mut request, _output) = request(&[0; 4], 4);
    request.pools[0] = RequestMemoryPool::Token(token);
    request.inputs[0] = argument(0, 0, 0);
    status(&model.executeSynchronously(&request, false, -1, -1))
}

#[test]
fn a_token_is_of_no_use_to_another_process() {
    let harness = Harness::new();
    let model = harness.prepare(&floor_model(&[1]));
    let parcel = IPreparedModelParcel { preparedModel: Some(model.clone()) };
    let role = BufferRole { modelIndex: 0, ioIndex: 0, probability: 1.0 };
    let allocated = harness.device().allocate(&BufferDesc::default(), &[parcel], &[role], &[]);
    let DeviceBuffer { buffer, token } = allocated.expect("allocated");
    let buffer = buffer.expect("a buffer");
    buffer.copyFrom(&ashmem(&memfd(&floats(&[1.5])), 4), &[]).expect("copied");
    assert_eq!(use_token(&model, token), ErrorStatus::NONE);
    let tried = other_process("another_process_tries_a_token", &harness, |c| c.env(TOKEN, token.to_string()));
    assert!(tried.success(), "{tried}");
    assert_eq!(use_token(&model, token), ErrorStatus::NONE);
}

#[test]
#[ignore = "the other process of a_token_is_of_no_use_to_another_process"]
fn another_process_tries_a_token() {
    let Ok(token) = std::env::var(TOKEN) else { return };
    let harness = Harness::new();
    let model = harness.prepare(&floor_model(&[1]));
    assert_eq!(use_token(&model, token.parse().expect("a token")), ErrorStatus::INVALID_ARGUMENT);
}

/// The cache files in a directory, which anybody may have put there.
fn cache_in(directory: &Path) -> Cache {
    let open = |name: &str| -> File {
        let path = directory.join(name);
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let file = file.unwrap_or_else(|why| panic!("{}: {why}", path.display()));
        let _ = file.set_permissions(Permissions::from_mode(0o666)); // where it is somebody else's, it is so already
        file
    };
    Cache { model: open("model"), data: open("data"), token: [7; 32] }
}

fn as_user<'c>(command: &'c mut Command, user: u32, directory: &Path) -> &'c mut Command {
    command.uid(user).gid(user).env(CACHE, directory)
}

#[test]
#[ignore = "needs root, and a driver that other users reach; tests/vm runs it"]
fn a_cache_is_of_no_use_to_another_user() {
    let harness = Harness::new();
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path();
    std::fs::set_permissions(path, Permissions::from_mode(0o777)).expect("opened to all");
    let [first, second] = USERS;
    let saved = other_process("a_user_saves", &harness, |c| as_user(c, first, path));
    assert!(saved.success(), "{saved}");
    let refused = other_process("a_user_is_refused", &harness, |c| as_user(c, second, path));
    assert!(refused.success(), "{refused}");
    // A copy is what the original is.
    let copy = path.join("copy");
    std::fs::create_dir(&copy).expect("made");
    for name in ["model", "data"] {
        std::fs::copy(path.join(name), copy.join(name)).expect("copied");
    }
    let refused = other_process("a_user_is_refused", &harness, |c| as_user(c, second, &copy));
    assert!(refused.success(), "{refused}");
    let loaded = other_process("a_user_loads", &harness, |c| as_user(c, first, &copy));
    assert!(loaded.success(), "{loaded}");
}

fn given_cache() -> Option<Cache> {
    std::env::var_os(CACHE).map(|directory| cache_in(Path::new(&directory)))
}

#[test]
#[ignore = "a process of a_cache_is_of_no_use_to_another_user"]
fn a_user_saves() {
    let Some(cache) = given_cache() else { return };
    let harness = Harness::new();
    save(harness.device(), &add(), &cache);
    assert_eq!(load(harness.device(), &cache).0, ErrorStatus::NONE);
}

#[test]
#[ignore = "a process of a_cache_is_of_no_use_to_another_user"]
fn a_user_is_refused() {
    let Some(cache) = given_cache() else { return };
    assert_general_failure(Harness::new().device(), &cache, "another user's cache");
}

#[test]
#[ignore = "a process of a_cache_is_of_no_use_to_another_user"]
fn a_user_loads() {
    let Some(cache) = given_cache() else { return };
    let harness = Harness::new();
    let (_, model) = load(harness.device(), &cache);
    assert_eq!(execute(&model.expect("a hit"), &[1.0]), Ok(vec![added()]));
}
