//! android/push.sh, android/vts.sh and android/bench.sh with an adb that is none: a device of files, which notes what it is asked.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

pub const NAME: &str = "android.hardware.neuralnetworks-service.nnhal";

/// Stands in for adb: `shell` answers for a device whose state is files beside it, and all calls are noted.
const ADB: &str = r#"#!/bin/bash
here=$(dirname "$0")
echo "$*" >>"$here/calls"
[ "$1" = shell ] || {
  case $1 in
    remount) [ ! -e "$here/read-only" ] ;;
    devices) echo "List of devices attached"; cat "$here/devices" ;;
    pull) cp "$here/results.xml" "$3" ;;
    push) cp "$2" "$here/has-${3##*/}" ;;
  esac
  exit
}
shift
case $* in
  "getprop ro.product.cpu.abi") cat "$here/abi" ;;
  "getprop "*) echo "${2##*.}" ;;
  nproc) echo 2 ;;
  "for cpu in "*) printf '%s\n' "0x410fd034 1804800" "0x410fd0b0 2361600" "0x410fd034 1804800" ;;
  "[ -f "*) [ ! -e "$here/peer" ] || echo yes ;;
  *" --service binder:nnhal bench "*) cat "$here/by_binder" ;;
  *" bench "*" --threads 1 "*) echo "ran"; echo '{"median_ms":6.0,"p90_ms":9}' ;;
  *" bench "*" --threads 2 "*) echo '{"median_ms":3.5,"p90_ms":9}' ;;
  *benchmark_model\ --graph*) cat "$here/peer" ;;
  "ls -Z "*) cat "$here/label" ;;
  "cat "*) cat "$here/has-${2##*/}" ;;
  "id -u") cat "$here/uid" ;;
  "id "*) [ ! -e "$here/no-user" ] ;;
  "stop "*) [ -e "$here/by-hand" ] || rm -f "$here/running" ;;
  "kill "*) rm -f "$here/running" ;;
  "start "*) touch "$here/running"; [ ! -e "$here/unknown" ] ;;
  "service check "*)
    n=$(($(cat "$here/checks" 2>/dev/null || echo 0) + 1))
    echo $n >"$here/checks"
    [ $n -ge "$(cat "$here/registers")" ] && echo "Service $3: found" || echo "Service $3: not found" ;;
  "pidof "*) [ -e "$here/running" ] || exit 1
    n=$(cat "$here/asked" 2>/dev/null || echo 0); echo $((n + 1)) >"$here/asked"
    [ -e "$here/dies" ] && echo $((700 + n)) || echo 700 ;;
  *--gtest_filter=*) cat "$here/tests"; exit "$(cat "$here/status")" ;;
  logcat*) echo "nnhal: cannot register" ;;
esac
"#;

/// A file of android/.
pub fn ours(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("android").join(name)
}

struct Device {
    directory: tempfile::TempDir,
}

impl Device {
    fn new() -> Self {
        let device = Device { directory: tempfile::TempDir::new().expect("a directory") };
        device.put("adb", ADB);
        let executable = fs::Permissions::from_mode(0o755);
        fs::set_permissions(device.path("adb"), executable).expect("made executable");
        device.put("abi", "arm64-v8a\r\n");
        device.put("label", "u:object_r:hal_neuralnetworks_nnhal_exec:s0 /vendor/bin/hw/it\r\n");
        device.put("registers", "1");
        device.put("uid", "0\r\n");
        device.put("running", "");
        for file in ["rc", "xml"].map(|extension| format!("{NAME}.{extension}")) {
            fs::copy(ours(&file), device.path(&format!("has-{file}"))).expect("copied");
        }
        device.put("binary", "a daemon");
        device.put("devices", "0123\tdevice\r\n\r\n");
        device.put("by_binder", "ran 9 times\r\n{\"median_ms\":4.25,\"p90_ms\":5}\r\n");
        device.put("results.xml", "<testsuites/>");
        device
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn put(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect("written");
    }

    fn run(&self, script: &str, arguments: &[&str]) -> (Option<i32>, String) {
        let mut command = Command::new(ours(script));
        command.args(arguments).current_dir(&self.directory);
        command
            .env("ADB", self.path("adb"))
            .env("NNHAL_PATIENCE", "1")
            .env("NNHAL_PREBUILT", self.path("built"));
        let Output { status, stdout, stderr } = command.output().expect("it runs");
        (status.code(), [stdout, stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat())
    }

    fn calls(&self) -> Vec<String> {
        let calls = fs::read_to_string(self.path("calls")).expect("calls");
        calls.lines().map(String::from).collect()
    }

    /// Where a call that begins so is among the calls.
    #[track_caller]
    fn position(&self, call: &str) -> usize {
        let calls = self.calls();
        calls.iter().position(|c| c.starts_with(call)).unwrap_or_else(|| panic!("no {call:?} in {calls:#?}"))
    }
}

#[test]
fn pushing_replaces_the_daemon_and_waits_for_the_registration() {
    let device = Device::new();
    device.put("registers", "3");
    // Relative to where it is called, not to android/.
    let (status, said) = device.run("push.sh", &["binary"]);
    assert_eq!(status, Some(0), "{said}");
    assert!(said.contains("IDevice/nnhal is registered"), "{said}");
    let order = [
        "root".into(),
        "shell id -u".into(),
        "remount".into(),
        "shell id vendor_nnhal".into(),
        "shell stop vendor.neuralnetworks-nnhal".into(),
        format!("push binary /vendor/bin/hw/{NAME}"),
        format!("shell restorecon /vendor/bin/hw/{NAME}"),
        format!("shell cat /vendor/etc/init/{NAME}.rc"),
        format!("shell cat /vendor/etc/vintf/manifest/{NAME}.xml"),
        "shell start vendor.neuralnetworks-nnhal".into(),
        "shell service check android.hardware.neuralnetworks.IDevice/nnhal".into(),
    ];
    let places: Vec<_> = order.iter().map(|call: &String| device.position(call)).collect();
    assert!(places.is_sorted(), "{:#?}", device.calls());
    assert_eq!(device.calls().iter().filter(|call| call.contains("service check")).count(), 3);
}

#[test]
fn what_is_read_at_the_devices_start_asks_for_one() {
    let device = Device::new();
    for new in ["rc", "xml"].map(|extension| format!("has-{NAME}.{extension}")) {
        fs::remove_file(device.path("calls")).ok();
        device.put(&new, "of an earlier version");
        let (status, said) = device.run("push.sh", &["binary"]);
        assert!(status == Some(3) && said.contains("adb reboot, then run this again"), "{said}");
        // A daemon that servicemanager would refuse is not started.
        assert!(!device.calls().iter().any(|call| call.starts_with("shell start")), "{:#?}", device.calls());
        let (status, said) = device.run("push.sh", &["binary"]);
        assert_eq!(status, Some(0), "{said}");
    }
    device.put("unknown", "");
    let (status, said) = device.run("push.sh", &["binary"]);
    assert!(
        status == Some(1) && said.contains("init does not know vendor.neuralnetworks-nnhal yet"),
        "{said}"
    );
}

#[test]
fn a_daemon_that_init_did_not_start_is_ended_first() {
    let binary = format!("push binary /vendor/bin/hw/{NAME}");
    for (arguments, then) in [(["binary"], &binary[..]), (["--undo"], "shell rm -f /vendor/bin/hw")] {
        let device = Device::new();
        device.put("by-hand", "");
        let (status, said) = device.run("push.sh", &arguments);
        assert_eq!(status, Some(0), "{said}");
        let kill = device.position("shell kill 700");
        assert!(device.position("shell stop ") < kill && kill < device.position(then));
        // And waited for.
        let asked = |call: &String| call.starts_with("shell pidof ");
        assert!(device.calls().iter().skip(kill).any(asked), "{:#?}", device.calls());
    }
}

#[test]
fn an_image_without_policy_or_user_gets_no_manifest() {
    let refused = |name: &str, text: &str, why: &str| {
        let device = Device::new();
        device.put(name, text);
        let (status, said) = device.run("push.sh", &["binary"]);
        assert!(status == Some(1) && said.contains(why), "{said}");
        let pushed = |call: &&String| call.starts_with("push ") && !call.contains("/vendor/bin/hw/");
        assert_eq!(device.calls().iter().find(pushed), None);
        device
    };
    refused("no-user", "", "the image has no user vendor_nnhal: build it with android/nnhal_board.mk");
    let device = refused("label", "u:object_r:vendor_file:s0 it\n", "lacks android/sepolicy");
    device.position(&format!("shell rm -f /vendor/bin/hw/{NAME}"));
}

#[test]
fn pushing_says_what_is_wrong() {
    let device = Device::new();
    let push = |arguments: &[&str]| device.run("push.sh", arguments);
    let (status, said) = push(&["/nowhere"]);
    assert!(status == Some(1) && said.contains("run android/build.sh"), "{said}");
    let (status, said) = push(&[]);
    let built = device.path("built/arm64").join(NAME).display().to_string();
    assert!(status == Some(1) && said.contains(&format!("no {built}: run")), "{said}");
    device.put("abi", "riscv64\n");
    let (status, said) = push(&[]);
    assert!(status == Some(1) && said.contains("nothing is built for riscv64"), "{said}");
    device.put("registers", "1000");
    let (status, said) = push(&["binary"]);
    assert!(status == Some(1) && said.contains("not registered after 1 s"), "{said}");
    assert!(said.contains("nnhal: cannot register"), "what the daemon said is shown: {said}");
    device.put("read-only", "");
    let (status, said) = push(&["binary"]);
    assert!(status == Some(1) && said.contains("disable-verity"), "{said}");
    device.put("uid", "2000\n");
    let (status, said) = push(&["binary"]);
    assert!(status == Some(1) && said.contains("a userdebug or eng build is needed"), "{said}");
}

#[test]
fn what_was_pushed_is_taken_away_again() {
    let device = Device::new();
    let (status, said) = device.run("push.sh", &["--undo"]);
    assert_eq!(status, Some(0), "{said}");
    let stopped = device.position("shell stop vendor.neuralnetworks-nnhal");
    let removed = device.position(&format!("shell rm -f /vendor/bin/hw/{NAME} /vendor/etc/init/{NAME}.rc"));
    assert!(stopped < removed);
    device.position("shell rm -rf /data/vendor/nnhal");
}

const TESTS: &str = "[==========] Running 4 tests\r
[       OK ] TestGenerated/GeneratedTest.Sync/nnhal_add (3 ms)\r
[  SKIPPED ] TestGenerated/DynamicOutputShapeTest.Test/nnhal_add (0 ms)\r
[  FAILED  ] TestGenerated/GeneratedTest.Sync/nnhal_sub (1 ms)\r
[  FAILED  ] TestGenerated/GeneratedTest.Sync/nnhal_mul (1 ms)\r
[  FAILED  ] 2 tests, listed below:\r
[  FAILED  ] TestGenerated/GeneratedTest.Sync/nnhal_sub\r
";

#[test]
fn vts_is_run_for_this_instance_and_summed_up() {
    let device = Device::new();
    device.put("tests", TESTS);
    device.put("status", "1");
    let (status, said) = device.run("vts.sh", &["--out", "results", "binary"]);
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("1 passed, 2 failed, 1 skipped"), "{said}");
    assert!(said.contains("failed 2 TestGenerated/GeneratedTest.Sync"), "{said}");
    let failed = fs::read_to_string(device.path("results/failed.txt")).expect("a list");
    assert_eq!(failed.lines().count(), 2);
    assert!(device.path("results/results.xml").is_file() && device.path("results/logcat.txt").is_file());
    let run = device.calls().into_iter().find(|call| call.contains("--gtest_filter")).expect("it ran");
    assert!(run.contains("--gtest_filter='*nnhal*'"), "{run}");

    device.put("tests", TESTS.lines().nth(1).expect("what passed"));
    device.put("status", "0");
    let (status, said) = device.run("vts.sh", &["--filter", "A.B", "binary"]);
    assert!(status == Some(0) && said.contains("1 passed, 0 failed"), "{said}");
    assert!(device.calls().iter().any(|call| call.contains("--gtest_filter='A.B'")));
}

#[test]
fn vts_does_not_take_a_dead_daemon_or_no_test_for_success() {
    let device = Device::new();
    device.put("tests", TESTS.lines().nth(1).expect("what passed"));
    device.put("status", "0");
    device.put("dies", "");
    let (status, said) = device.run("vts.sh", &["binary"]);
    assert!(status == Some(1) && said.contains("the daemon died meanwhile"), "{said}");
    device.put("tests", "");
    let (status, said) = device.run("vts.sh", &["binary"]);
    assert!(status == Some(2) && said.contains("no test ran"), "{said}");
    device.put("registers", "1000000");
    let (status, said) = device.run("vts.sh", &["binary"]);
    assert!(status == Some(2) && said.contains("run android/push.sh"), "{said}");
    let (status, said) = device.run("vts.sh", &["--wrong"]);
    assert!(status == Some(2) && said.contains("--wrong is not a flag"), "{said}");
}

const PEER: &str = "INFO: count=50 first=7 curr=6 min=5 max=9 avg=9999 std=1 p5=5 median=8000 p95=9\r
INFO: Inference timings in us: Init: 1, First inference: 2, Warmup (avg): 3, Inference (avg): 12000\r
";

impl Device {
    /// With the tool built, and a model; runs the bench.
    fn bench(&self, arguments: &[&str]) -> (Option<i32>, String) {
        fs::create_dir_all(self.path("built/arm64")).expect("a directory");
        self.put("built/arm64/nnhal", "the tool");
        self.put("net.tflite", "a model");
        let model = self.path("net.tflite").display().to_string();
        self.run("bench.sh", &[arguments, &[&model]].concat())
    }
}

#[test]
fn a_bench_prints_a_table_for_each_number_of_threads() {
    let device = Device::new();
    device.put("peer", PEER);
    let (status, said) = device.bench(&[]);
    assert_eq!(status, Some(0), "{said}");
    assert!(said.contains("device: manufacturer model, manufacturer model\n"), "{said}");
    assert!(said.contains("cores, by part: 2 x 0xd03 at 1804 MHz, 1 x 0xd0b at 2361 MHz"), "{said}");
    assert!(said.contains("On 1 thread, milliseconds:") && said.contains("On 2 threads, "), "{said}");
    // Two tables, as the device has two cores. The peer's median is taken, and not its mean.
    assert!(said.contains("| net | 4.250 | 6.000 | 8.000 | 0.75 |\n"), "{said}");
    assert!(said.contains("| net | 4.250 | 3.500 | 8.000 | 0.44 |\n"), "{said}");
    assert!(said.contains("no table for 4 threads: the device has 2 cores"), "{said}");
    let calls = device.calls();
    let rounds =
        |call: &&String| call.contains("--service binder:nnhal bench") && call.contains("--mode burst");
    assert_eq!(calls.iter().filter(rounds).count(), 6, "three rounds for each table: {calls:#?}");
    // A shell that is not root may make a socket in /data/local/tests, and none in /data/local/tmp.
    let sockets = "/data/local/tests/nnhal-bench";
    assert!(device.position("push") < device.position(&format!("shell TMPDIR={sockets} ")));
    let directories = format!("/data/local/tmp/nnhal-bench {sockets}");
    assert!(device.position(&format!("shell mkdir -p {directories}")) < device.position("push"));
    assert_eq!(*calls.last().expect("calls"), format!("shell rm -rf {directories}"));

    // Older ones tell no median.
    device.put("peer", PEER.lines().last().expect("a line"));
    let (status, said) = device.bench(&["--threads", "2", "--rounds", "1"]);
    assert!(status == Some(0) && said.contains("| net | 4.250 | 3.500 | 12.000 | 0.29 |"), "{said}");
}

#[test]
fn a_bench_without_the_peer_has_the_driver_alone() {
    let device = Device::new();
    let (status, said) = device.bench(&["--threads", "1"]);
    assert!(status == Some(0) && said.contains("| net | 4.250 | 6.000 | | |\n"), "{said}");
    assert!(said.contains("no /data/local/tmp/benchmark_model"), "{said}");
}

#[test]
fn a_bench_says_what_is_missing() {
    let device = Device::new();
    let fails = |arguments: &[&str], why: &str| {
        let (status, said) = device.bench(arguments);
        assert!(status == Some(1) && said.contains(why), "{said}");
    };
    fails(&["--wrong"], "--wrong is not a flag of bench.sh");
    fails(&["--threads", "many"], "expected numbers with a space between");
    fails(&["/nowhere.tflite"], "no model at /nowhere.tflite");
    device.put("by_binder", "nnhal: no service binder:nnhal\n");
    fails(&["--threads", "1"], "no service binder:nnhal");
    device.put("registers", "1000000");
    fails(&[], "IDevice/nnhal is not registered: run android/push.sh");
    device.put("abi", "x86_64\n");
    fails(&[], "run android/build.sh --tool x86_64");
    device.put("devices", "");
    fails(&[], "no device is connected");
    device.put("devices", "0123\tunauthorized\n");
    fails(&[], "0123 is unauthorized");
    device.put("devices", "0123\tdevice\n4567\tdevice\n");
    fails(&[], "name one of 0123 4567 by ANDROID_SERIAL");
    fs::remove_file(device.path("adb")).expect("removed");
    fails(&[], "install Android's platform tools");
}
