//! What is in android/, held against the daemon and against itself: names, paths, instance, flags, user and types appear in
//! many files, and a device finds out late that two of them differ.

use nnhal::daemon::{Endpoint, Flags};
use std::path::{Path, PathBuf};

const BINARY: &str = "android.hardware.neuralnetworks-service.nnhal";
const INSTANCE: &str = "android.hardware.neuralnetworks.IDevice/nnhal";
const DATA: &str = "/data/vendor/nnhal";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|why| panic!("{path}: {why}"))
}

/// The lines of a file without comments and indentation.
fn lines(path: &str) -> Vec<String> {
    let text = read(path);
    text.lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(str::to_owned)
        .collect()
}

/// What is between `before` and `after`, once.
#[track_caller]
fn between<'t>(text: &'t str, before: &str, after: &str) -> &'t str {
    let (_, rest) = text.split_once(before).unwrap_or_else(|| panic!("no {before:?}"));
    assert!(!rest.contains(before), "{before:?} is there twice");
    rest.split_once(after).unwrap_or_else(|| panic!("no {after:?} after {before:?}")).0
}

/// An init file: the service's name, its program, its arguments, and its options.
struct Service {
    name: String,
    program: String,
    arguments: Vec<String>,
    options: Vec<String>,
    all: Vec<String>,
}

fn service(path: &str) -> Service {
    let all = lines(path);
    let at = all.iter().position(|line| line.starts_with("service ")).expect("a service");
    let mut words = all[at].split_whitespace().skip(1).map(String::from);
    let (name, program) = (words.next().expect("a name"), words.next().expect("a program"));
    Service { name, program, arguments: words.collect(), options: all[at + 1..].to_vec(), all: all.clone() }
}

/// The files below a directory, but for what was built and what is hidden.
fn files_below(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).expect("a directory");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let seen = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).expect("a name");
        name != "target" && !name.starts_with('.')
    };
    let below = |path: PathBuf| if path.is_dir() { files_below(&path) } else { vec![path] };
    paths.filter(seen).flat_map(below).collect()
}

fn apex_manifest() -> serde_json::Value {
    serde_json::from_str(&read("android/apex/apex_manifest.json")).expect("JSON")
}

/// What the driver is made of on a device, without the tests at the foot of files.
fn sources() -> Vec<(PathBuf, String)> {
    let mut files = files_below(&root().join("src"));
    // What is there with features that the daemon builds without, and one module of tests.
    let other = ["src/tflite", "src/tool", "src/backend/cpu/kernels/measure"];
    files.retain(|path| path.extension().is_some_and(|e| e == "rs"));
    files.retain(|path| !other.iter().any(|other| path.starts_with(root().join(other))));
    let code = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).expect("a source");
        let code = text.split("#[cfg(test)]\nmod ").next().expect("text").to_owned();
        (path, code)
    };
    files.into_iter().map(code).collect()
}

fn services() -> [Service; 2] {
    [service(&format!("android/{BINARY}.rc")), service("android/apex/nnhal-apex.rc")]
}

#[test]
fn init_starts_the_daemon_with_flags_that_it_has() {
    for service in services() {
        let flags = Flags::parse(service.arguments).expect("flags of the daemon").expect("no call for help");
        assert_eq!(flags.service, Endpoint::Binder("nnhal".into()));
        assert_eq!(flags.data.as_deref(), Some(Path::new(DATA)));
        let option = |option: &str| service.options.iter().any(|line| line == option);
        assert!(option(&format!("interface aidl {INSTANCE}")) && option("class hal"));
        assert!(option("user vendor_nnhal") && option("group vendor_nnhal") && option("capabilities"));
        let made = format!("mkdir {DATA} 0700 vendor_nnhal vendor_nnhal");
        assert!(service.all.contains(&made), "its data directory is made by init");
        assert_eq!(service.name, "vendor.neuralnetworks-nnhal");
    }
    let [vendor, apex] = services();
    assert_eq!(vendor.program, format!("/vendor/bin/hw/{BINARY}"));
    assert_eq!(apex.program, format!("/apex/com.nnhal.hardware.neuralnetworks/bin/hw/{BINARY}"));
    assert_eq!(vendor.arguments.len(), 4);
    assert_eq!(vendor.options, apex.options, "both are started alike");
}

#[test]
fn an_apex_names_an_event_that_comes_after_its_file_was_read() {
    let [vendor, apex] = services();
    let trigger = |service: &Service| {
        let triggers = service.all.iter().filter_map(|line| line.strip_prefix("on "));
        triggers.map(String::from).collect::<Vec<_>>()
    };
    assert_eq!(trigger(&vendor), ["post-fs-data"], "nobody reads the directory before");
    // init reads an APEX's file during its own post-fs-data, and starts the class hal at boot.
    assert_eq!(trigger(&apex), ["early-boot"]);
}

#[test]
fn the_manifests_declare_what_the_daemon_registers() {
    assert_eq!(INSTANCE, format!("{}/nnhal", nnhal::daemon::serve::INTERFACE));
    for path in [format!("android/{BINARY}.xml"), "android/apex/nnhal-apex.xml".into()] {
        let text = read(&path);
        let name = between(&text, "<name>", "</name>");
        let fqname = between(&text, "<fqname>", "</fqname>");
        let (interface, instance) = fqname.split_once('/').expect("an interface and an instance");
        assert_eq!(format!("{name}.{interface}/{instance}"), INSTANCE);
        let version: i32 = between(&text, "<version>", "</version>").parse().expect("a number");
        assert_eq!(version, nnhal::aidl::INTERFACE_VERSION, "the frozen version");
        assert_eq!(between(&text, "<manifest ", ">"), "version=\"1.0\" type=\"device\"");
    }
    let apex = read("android/apex/nnhal-apex.xml");
    let manifest = apex_manifest();
    assert_eq!(manifest["name"], between(&apex, "updatable-via-apex=\"", "\""));
}

#[test]
fn an_apex_requires_the_libraries_that_the_daemon_loads_by_itself() {
    // Soong adds those that are linked only, and an APEX sees no others.
    let mut loaded = Vec::new();
    for (path, code) in sources() {
        let calls = code.split("libc::dlopen(c\"").skip(1).map(|rest| rest.split('"').next());
        loaded.extend(calls.map(|name| name.expect("a name").to_owned()));
        assert_eq!(code.matches("dlopen(").count(), code.matches("libc::dlopen(c\"").count(), "{path:?}");
    }
    let manifest = apex_manifest();
    assert!(!loaded.is_empty());
    assert_eq!(manifest["requireNativeLibs"], serde_json::json!(loaded));
}

/// Whether a regular expression of file_contexts, of which ours use escaped points, alternatives and an optional tail,
/// matches `path`.
fn matches(expression: &str, path: &str) -> bool {
    regex::Regex::new(&format!("^{expression}$")).expect("an expression").is_match(path)
}

#[test]
fn every_file_gets_the_type_that_the_policy_gives_rights_to() {
    let types =
        [read("android/sepolicy/file.te"), read("android/sepolicy/hal_neuralnetworks_nnhal.te")].concat();
    let declared = |name: &str| types.lines().any(|line| line.starts_with(&format!("type {name},")));
    let label = |path: &str| {
        let contexts = lines("android/sepolicy/file_contexts");
        let found: Vec<_> = contexts
            .iter()
            .filter_map(|line| line.split_once(char::is_whitespace))
            .filter(|(expression, _)| matches(expression, path))
            .map(|(_, context)| between(context, "u:object_r:", ":s0").to_owned())
            .collect();
        assert_eq!(found.len(), 1, "{path}: {found:?}");
        found[0].clone()
    };
    let [vendor, apex] = services();
    let (program, data) = (label(&vendor.program), label(DATA));
    assert_eq!((&program[..], &data[..]), ("hal_neuralnetworks_nnhal_exec", "vendor_nnhal_data_file"));
    assert_eq!(label(&format!("{DATA}/store/registry.redb")), data);
    assert!(declared(&program) && declared(&data) && declared("hal_neuralnetworks_nnhal"));
    // init_daemon_domain goes by this.
    assert!(program.strip_suffix("_exec").is_some_and(declared));
    let inside = apex.program.strip_prefix("/apex/com.nnhal.hardware.neuralnetworks").expect("in its APEX");
    let contexts = lines("android/apex/file_contexts");
    let mut last = contexts.iter().filter_map(|line| line.split_once(char::is_whitespace));
    let last = last.rfind(|(expression, _)| matches(expression, inside)).expect("a context");
    assert_eq!(last.1.trim(), format!("u:object_r:{program}:s0"));
    let services: Vec<_> = lines("android/sepolicy/service_contexts");
    let words: Vec<_> = services.iter().map(|line| line.split_whitespace().collect::<Vec<_>>()).collect();
    assert_eq!(words, [[INSTANCE, "u:object_r:hal_neuralnetworks_service:s0"]]);
}

#[test]
fn every_allow_rule_has_its_reason_above_it() {
    let policy = read("android/sepolicy/hal_neuralnetworks_nnhal.te");
    let macros = ["allow ", "crash_dump_fallback(", "hal_client_domain("];
    let allows = |line: &str| macros.iter().any(|rule| line.starts_with(rule));
    let rules = policy.split("\n\n").filter(|block| block.lines().any(allows));
    let mut count = 0;
    for block in rules {
        assert!(block.starts_with("# "), "a rule without its reason: {block}");
        count += 1;
    }
    assert_eq!(
        count, 6,
        "its data, fences, apps' shared memory, hardware buffers, dumps and crashes; docs/ANDROID.md lists them"
    );
}

#[test]
fn the_user_of_the_daemon_is_one_that_the_product_makes() {
    let config = lines("android/config.fs");
    assert_eq!(config[0], "[AID_VENDOR_NNHAL]");
    let number: u32 = config[1].strip_prefix("value: ").and_then(|text| text.parse().ok()).expect("a number");
    assert!((2900..3000).contains(&number), "vendors have no other numbers");
    assert!(lines("android/nnhal_board.mk").iter().any(|line| line.ends_with("/config.fs")));
}

#[test]
fn modules_name_files_that_are_there_or_are_made() {
    let quoted = |text: &str| text.split('"').skip(1).step_by(2).map(String::from).collect::<Vec<_>>();
    let mut named = Vec::new();
    for file in ["Android.bp", "nnhal_source.bp", "nnhal_platform.bp", "nnhal_apex.bp"] {
        let text = read(file);
        let code: String = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
        let files = quoted(&code).into_iter().filter(|name| name.contains('.') && !name.starts_with(':'));
        named.extend(files.map(|name| (file, PathBuf::from(name))));
    }
    let is_file =
        |path: &Path| path.extension().is_some_and(|e| ["rs", "rc", "xml", "json"].iter().any(|k| e == *k));
    let mut found = 0;
    for (file, path) in named.iter().filter(|(_, path)| is_file(path)) {
        let generated = path.starts_with("android/generated") || path.parent() == Some(Path::new(""));
        assert!(generated || root().join(path).is_file(), "{file}: no {}", path.display());
        found += 1;
    }
    assert!(found > 6, "{named:?}");
    for text in ["android/nnhal.mk", "Android.bp", "nnhal_source.bp", "nnhal_platform.bp", "android/build.sh"]
        .map(read)
    {
        assert!(text.contains(BINARY));
    }
}

#[test]
fn a_tree_reads_one_file_of_modules_unasked() {
    // Soong reads every Android.bp of a tree: what needs more than any tree has is asked for by name.
    let files = files_below(root());
    let named: Vec<_> = files.iter().filter(|path| path.ends_with("Android.bp")).collect();
    assert_eq!(named, [&root().join("Android.bp")]);
    let modules = read("nnhal_apex.bp");
    assert!(modules.contains("build = [\"nnhal_apex.bp\"]"), "it says how");
    let manifest = apex_manifest();
    let name = manifest["name"].as_str().expect("a name");
    assert!(
        modules.contains(&format!("name: \"{name}\",")) && !name.starts_with("com.android."),
        "AOSP's own"
    );
    assert!(lines("android/nnhal.mk").contains(&format!("PRODUCT_PACKAGES += {name}")));
}

/// The crates that the daemon names, as a table of dependencies in `manifest` lists them up to `end`.
fn crates(manifest: &str, end: &str) -> Vec<String> {
    let dependencies = between(manifest, "\n[dependencies]\n", end);
    let names =
        dependencies.lines().filter_map(|line| line.split_once(" = ")).map(|(name, _)| name.to_string());
    names.collect()
}

#[test]
fn sources_that_soong_builds_name_all_crates_of_the_daemon() {
    let manifest = read("Cargo.toml");
    let mut names = crates(&manifest, "# tflite only");
    let android = between(&manifest, "'cfg(target_os = \"android\")'.dependencies]\n", "\n[");
    names.extend(android.lines().filter_map(|line| line.split(' ').next()).map(String::from));
    assert!(names.len() > 8, "{names:?}");
    for (file, binder) in [("nnhal_source.bp", "libbinder_rsbinder"), ("nnhal_platform.bp", "libbinder_rs")] {
        let modules = read(file);
        for name in names.iter().filter(|name| !name.is_empty()) {
            let named = |library: &str| modules.contains(&format!("\"{library}\""));
            let found = named(&format!("lib{name}")) || named(&format!("lib{name}_rust"));
            assert!(found || (name == "binder" && named(binder)), "{file} lacks {name}");
        }
    }
}

#[test]
fn nothing_that_soong_builds_asks_cargo_for_anything() {
    // Soong sets none of Cargo's variables; what is to be known of the package is in the file that build.rs writes.
    for (path, code) in sources() {
        assert!(!code.contains("env!(\"CARGO_"), "{}", path.display());
    }
    assert!(read("build.rs").contains("env!(\"CARGO_PKG_VERSION\")"));
}

#[test]
fn what_stands_in_for_the_platforms_library_is_built_with_what_the_driver_is() {
    let ours = read("Cargo.toml");
    let theirs = read("android/platform_binder/Cargo.toml") + "\n[";
    let lines = |text: &str, end: &str| -> Vec<String> {
        let dependencies = between(text, "\n[dependencies]\n", end);
        let lines = dependencies.lines().filter(|line| line.contains(" = "));
        let own = |line: &&str| !line.starts_with("binder ") && !line.starts_with("nnhal_interfaces ");
        lines.filter(own).map(String::from).collect()
    };
    assert_eq!(lines(&ours, "# tflite only"), lines(&theirs, "\n["));
    // And with the same interfaces.
    let script = read("android/platform_interfaces.sh");
    let flags = |version: i32, hash: &str| format!("\"--version={version} --hash={hash}\"");
    assert!(script.contains(&flags(nnhal::aidl::INTERFACE_VERSION, nnhal::aidl::INTERFACE_HASH)));
    assert!(script.contains(&flags(nnhal::aidl::BURST_VERSION, nnhal::aidl::BURST_HASH)));
    assert!(script.contains(&flags(nnhal::aidl::DIAGNOSTICS_VERSION, nnhal::aidl::DIAGNOSTICS_HASH)));
}
