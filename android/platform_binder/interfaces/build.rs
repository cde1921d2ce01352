//! Makes the interfaces out of what rsbinder-aidl generated of them: the declarations stay, with libbinder_rs's names; what
//! reads and writes parcels goes.
//!
//! What is as AIDL's Rust backend has it: the module of each type, `binder::Result`, classes with `BinderFeatures`, traits
//! and types member by member. It relies on how rsbinder-aidl lays out its text, and fails where it knows a line not.

use std::path::Path;

const GENERATED: &str = "../../generated/nnapi.rs";
/// The platform's package of message queues, for which rsbinder has types of its own.
const QUEUES: &str = "crate::aidl::android::hardware::common::fmq";

fn main() {
    println!("cargo:rerun-if-changed={GENERATED}");
    println!("cargo:rerun-if-changed=queues.rs");
    let text = std::fs::read_to_string(GENERATED)
        .unwrap_or_else(|why| panic!("{GENERATED}: {why}: run android/build.sh --generated"));
    let queues = std::fs::read_to_string("queues.rs").expect("queues.rs");
    let interfaces = convert(&text).replace("pub mod Ashmem {", &format!("{queues}\npub mod Ashmem {{"));
    let out = std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR");
    std::fs::write(Path::new(&out).join("interfaces.rs"), interfaces).expect("written");
}

/// The lines of an item that begins with `first`, up to its last brace or semicolon.
fn item<'a>(lines: &mut impl Iterator<Item = &'a str>, first: &'a str) -> Vec<&'a str> {
    let (mut opened, mut closed, mut item) = (0, 0, vec![first]);
    loop {
        let line = item[item.len() - 1];
        opened += line.matches('{').count();
        closed += line.matches('}').count();
        // Signatures may have lines of their own.
        if opened == closed && (opened > 0 || line.ends_with(';')) {
            return item;
        }
        item.push(lines.next().expect("items end"));
    }
}

fn convert(text: &str) -> String {
    let (mut out, mut methods) = (String::new(), Vec::new());
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let code = line.trim();
        let starts = |prefix: &str| code.starts_with(prefix);
        if starts("pub mod ") || code == "}" || starts("#[derive(") {
            out += &(plain(line) + "\n");
        } else if code.is_empty() || starts("//") || starts("#[allow(") || starts("#![allow(") {
        } else if starts("rsbinder::declare_binder_interface!") {
            out += &class(&item(&mut lines, line), &methods);
        } else if starts("pub trait ") && code.contains(": rsbinder::Interface") {
            let whole = item(&mut lines, line);
            methods = signatures(&whole);
            out += &plain(whole[0]);
            // The only ones that have a body of their own in the trait.
            let body =
                |method: &str| if method.contains("r#getInterface") { " { unimplemented!() }" } else { ";" };
            out += &methods.iter().map(|method| format!("{method}{}\n", body(method))).collect::<String>();
            out += "}\n";
        } else if starts("pub const ")
            || starts("pub struct ")
            || starts("pub enum ")
            || starts("impl ::core::default::Default for ")
            || starts("rsbinder::declare_binder_enum!")
        {
            item(&mut lines, line).iter().for_each(|line| out += &(plain(line) + "\n"));
        } else if [
            "impl ",
            "pub(crate) mod ",
            "pub trait ",
            "fn on_transact(",
            "pub type ",
            "static ",
            "rsbinder::impl_",
        ]
        .iter()
        .any(|known| starts(known))
        {
            item(&mut lines, line);
        } else {
            panic!("what is {code:?}?");
        }
    }
    out
}

/// A line with libbinder_rs's names.
fn plain(line: &str) -> String {
    let mut line = line.replace("rsbinder::BinderResult", "binder::Result");
    for queue in ["GrantorDescriptor", "MQDescriptor", "SynchronizedReadWrite"] {
        line = line.replace(&format!("rsbinder::fmq::{queue}"), &format!("{QUEUES}::{queue}::{queue}"));
    }
    line.replace("rsbinder::", "binder::")
}

/// The methods of a trait, without their bodies.
fn signatures(lines: &[&str]) -> Vec<String> {
    let methods = lines.iter().map(|line| line.trim()).filter(|line| line.starts_with("fn r#"));
    methods.map(|line| plain(line.trim_end_matches([';', '{', ' ']))).collect()
}

/// The classes of an interface, local and remote. Its declaration names them, and its stability.
fn class(lines: &[&str], methods: &[String]) -> String {
    let named = |prefix: &str| {
        let found = lines.iter().find_map(|line| line.trim().strip_prefix(prefix));
        let found = found.unwrap_or_else(|| panic!("no {prefix} in {lines:?}"));
        found.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default().to_string()
    };
    let interface = lines[1].trim().split('[').next().unwrap_or_default();
    let local = format!("Bn{}", named("Bn"));
    let remote = named("proxy: ");
    let bodies: String = methods.iter().map(|method| format!("{method} {{ unimplemented!() }}\n")).collect();
    format!(
        "binder::declare_binder_interface!({interface}, {local}, {remote});\n\
         impl {interface} for {remote} {{\n{bodies}}}\n\
         impl {interface} for binder::binder_impl::Binder<{local}> {{\n{bodies}}}\n"
    )
}
