//! The daemon's life: from its flags to the signal that ends it.

use super::logger;
use super::sandbox::{self, Processes};
use super::serve::{register, ServeError};
use super::unix::{UnixService, SOCKET_MODE};
use crate::backend::Backend;
use crate::isolation::{self, Isolated};
use crate::memory::{bytes_for_clients, give_back_after, give_back_soon, Budget};
use crate::scheduler::{limits, marks, time_slices};
use crate::service::Driver;
use nix::sys::resource::{getrlimit, setrlimit, Resource};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::stat::{umask, Mode};
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::Instant;

/// How to call the daemon.
pub const USAGE: &str =
    "usage: nnhald [--service unix:PATH|binder:INSTANCE] [--socket-mode OCTAL] [--data DIR|none] [--store MIB] [--memory MIB] [--threads N] [--share-weights] [--backend-process] [--atrace] [--no-sandbox]";

const EXAMPLE: &str = "example: nnhald --service unix:/tmp/nnhal.sock --data none --threads 2";

/// Where the service is offered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    Unix(PathBuf),
    Binder(String),
}

impl std::str::FromStr for Endpoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some(("unix", path)) if !path.is_empty() => Ok(Endpoint::Unix(path.into())),
            Some(("binder", instance)) if !instance.is_empty() => Ok(Endpoint::Binder(instance.into())),
            _ => Err(format!("{text:?} is not a service: expected unix:PATH or binder:INSTANCE")),
        }
    }
}

impl std::fmt::Display for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Endpoint::Unix(path) => write!(f, "unix:{}", path.display()),
            Endpoint::Binder(instance) => write!(f, "binder:{instance}"),
        }
    }
}

/// The daemon's flags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flags {
    pub service: Endpoint,
    /// The mode of a socket's file: who may connect. `None` for the daemon's own user.
    pub socket_mode: Option<u32>,
    /// Where the driver keeps what must survive it; `None` for nowhere. Unless told, where the platform keeps such things.
    pub data: Option<PathBuf>,
    /// MiB of compiled models to keep there for clients that give no cache files; 0 for none.
    pub store: Option<u64>,
    /// MiB of private memory for all clients together; `None` for half of the machine's. Of device buffers there is half as
    /// much besides.
    pub memory: Option<u64>,
    /// Threads that compute; `None` for one per core.
    pub threads: Option<usize>,
    /// Whether equal weights of several clients' models lie in memory once: see
    /// [`share_weights`](crate::service::DriverBuilder::share_weights).
    pub share_weights: bool,
    /// Whether the backend has a process of its own, which may die without the service.
    pub backend_process: bool,
    /// Whether this is that process: the daemon starts itself once more with this flag, which is not for people.
    pub serve_backend: bool,
    /// Whether to mark what it does in the kernel's trace.
    pub atrace: bool,
    /// Whether to leave the process unconfined, so that it can be looked into.
    pub no_sandbox: bool,
}

/// What has a daemon serve its backend to the one that started it.
const SERVE_BACKEND: &str = "--serve-backend";

impl Flags {
    /// Reads flags, each as `--flag value` or `--flag=value`. `Ok(None)` where help is asked for.
    pub fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Option<Self>, String> {
        let mut flags = Flags::default();
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            let (flag, inline) = match argument.split_once('=') {
                Some((flag, value)) => (flag, Some(value.to_string())),
                None => (argument.as_str(), None),
            };
            if matches!(flag, "-h" | "--help") {
                return Ok(None);
            }
            let switch = match argument.as_str() {
                "--atrace" => Some(&mut flags.atrace),
                "--no-sandbox" => Some(&mut flags.no_sandbox),
                "--share-weights" => Some(&mut flags.share_weights),
                "--backend-process" => Some(&mut flags.backend_process),
                SERVE_BACKEND => Some(&mut flags.serve_backend),
                _ => None,
            };
            if let Some(switch) = switch {
                *switch = true;
                continue;
            }
            if !matches!(
                flag,
                "--service" | "--socket-mode" | "--data" | "--store" | "--memory" | "--threads"
            ) {
                return Err(format!("{argument:?} is not a flag of nnhald"));
            }
            let value = inline.or_else(|| arguments.next()).ok_or_else(|| format!("{flag} needs a value"))?;
            match flag {
                "--service" => flags.service = value.parse()?,
                "--socket-mode" => flags.socket_mode = Some(socket_mode(&value)?),
                "--data" => flags.data = Some(value.into()).filter(|path| path != Path::new("none")),
                "--store" => flags.store = Some(mebibytes(&value, 0)?),
                // Below that not even small models can be prepared.
                "--memory" => flags.memory = Some(mebibytes(&value, 16)?),
                _ => flags.threads = Some(threads(&value)?),
            }
        }
        Ok(Some(flags))
    }
}

/// Where a daemon keeps its data unless a flag says otherwise: where the platform keeps the state of services.
pub fn state_directory() -> Option<PathBuf> {
    directory_by(|name| std::env::var_os(name))
}

fn directory_by(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    if cfg!(target_os = "android") {
        return Some("/data/vendor/nnhal".into());
    }
    let path = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    // A service manager may list several: the first is ours.
    let of_service = variable("STATE_DIRECTORY").and_then(|list| std::env::split_paths(&list).next());
    of_service
        .filter(|path| path.is_absolute())
        .or_else(|| Some(path("XDG_STATE_HOME")?.join("nnhal")))
        .or_else(|| Some(path("HOME")?.join(".local/state/nnhal")))
}

impl Default for Flags {
    fn default() -> Self {
        let service = Endpoint::Binder("nnhal".into());
        Flags {
            service,
            socket_mode: None,
            data: state_directory(),
            store: None,
            memory: None,
            threads: None,
            share_weights: false,
            backend_process: false,
            serve_backend: false,
            atrace: false,
            no_sandbox: false,
        }
    }
}

fn socket_mode(text: &str) -> Result<u32, String> {
    u32::from_str_radix(text, 8)
        .ok()
        .filter(|mode| *mode <= 0o777)
        .ok_or_else(|| format!("{text:?} is not the mode of a socket: expected an octal number such as 0660"))
}

fn mebibytes(text: &str, least: u64) -> Result<u64, String> {
    const MOST: u64 = 1 << 20;
    text.parse()
        .ok()
        .filter(|n| (least..=MOST).contains(n))
        .ok_or_else(|| format!("{text:?} is not a size in MiB: expected {least} to {MOST}"))
}

fn threads(text: &str) -> Result<usize, String> {
    const MOST: usize = 256;
    text.parse()
        .ok()
        .filter(|n| (1..=MOST).contains(n))
        .ok_or_else(|| format!("{text:?} is not a number of threads: expected 1 to {MOST}"))
}

/// Why the daemon ended before it was told to.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    #[error(transparent)]
    Serve(#[from] ServeError),
    #[error("cannot start the backend: {0}")]
    Backend(std::io::Error),
    #[error("cannot start threads: {0}")]
    Threads(std::io::Error),
    #[error("cannot wait for signals: {0}")]
    Signals(nix::Error),
}

/// The whole of a daemon's `main`: reads the command line, and serves the backend that `backend` makes of it until the
/// process is told to end.
pub fn main<B: Backend + 'static>(backend: impl FnOnce(&Flags) -> std::io::Result<B>) -> ExitCode {
    logger::start();
    let arguments: Result<Vec<String>, OsString> =
        std::env::args_os().skip(1).map(OsString::into_string).collect();
    let flags = arguments.map_err(|argument| format!("{argument:?} is not text in UTF-8"));
    let flags = match flags.and_then(Flags::parse) {
        Ok(Some(flags)) => flags,
        Ok(None) => {
            // Nobody may read it: println! would panic.
            let _ = writeln!(std::io::stdout(), "{USAGE}\n{EXAMPLE}");
            return ExitCode::SUCCESS;
        }
        Err(why) => {
            logger::failed(format_args!("{why}; {USAGE}"));
            return ExitCode::from(2);
        }
    };
    match run(&flags, backend) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            logger::failed(format_args!("{why}"));
            ExitCode::FAILURE
        }
    }
}

/// Serves the backend that `backend` makes, until SIGTERM or SIGINT.
pub fn run<B: Backend + 'static>(
    flags: &Flags,
    backend: impl FnOnce(&Flags) -> std::io::Result<B>,
) -> Result<(), DaemonError> {
    let began = Instant::now();
    // Before any thread starts, so that all inherit it: the signals that end the daemon come to this thread alone.
    let ending = SigSet::from_iter([Signal::SIGTERM, Signal::SIGINT]);
    ending.thread_block().map_err(DaemonError::Signals)?;
    if !flags.no_sandbox {
        sandbox::give_up_privileges();
    }
    raise_descriptor_limit();
    give_back_soon();
    // Beside processes that only compute, a thread that a call has woken would wait for milliseconds.
    if let Err(why) = time_slices::begin() {
        log::debug!("threads have time slices of the usual length: {why}");
    }
    // What it keeps is its own, whatever the one who started it lets others see.
    umask(Mode::from_bits_truncate(0o077));
    if flags.atrace {
        if let Err(why) = marks::write_to_kernel() {
            log::warn!("nothing is marked in the kernel's trace: {why}");
        }
    }
    let backend = backend_of(flags, backend).map_err(DaemonError::Backend)?;
    let memory = flags.memory.map(|mib| mib << 20);
    let builder = Driver::builder(backend).data(flags.data.clone());
    let builder = builder.memory(memory).backend_process(flags.backend_process);
    let builder = builder.share_weights(flags.share_weights);
    let builder = match flags.store {
        Some(mib) => builder.store(mib << 20),
        None => builder,
    };
    let driver = builder.build().map_err(DaemonError::Threads)?;
    give_back_after(driver.budget()).map_err(DaemonError::Threads)?;
    let service = match &flags.service {
        Endpoint::Unix(path) => {
            let mode = flags.socket_mode.unwrap_or(SOCKET_MODE);
            let service = UnixService::start(path, &driver.device, driver.for_transport(), mode)?;
            driver.tell_of(service.quotas());
            Some(service)
        }
        Endpoint::Binder(instance) => {
            register(instance, &driver.device)?;
            None
        }
    };
    // A HAL that is declared and registers late holds up every app.
    let taken = began.elapsed();
    confine::<B>(flags, if flags.backend_process { Processes::Starts } else { Processes::None });
    driver.open_ahead();
    log::info!("serving {}, {:.1} ms after the start", flags.service, taken.as_secs_f64() * 1e3);
    let signal = ending.wait().map_err(DaemonError::Signals)?;
    log::info!("ended by {signal}");
    driver.settle();
    if let Some(service) = service {
        service.abandon();
    }
    Ok(())
}

/// Confines this process, unless its backend needs more than that leaves. What such a backend's own process starts with it
/// has from the service, which is not confined then, either.
fn confine<B: Backend>(flags: &Flags, processes: Processes) {
    if !flags.no_sandbox && B::only_computes() {
        sandbox::confine(processes);
    }
}

/// The backend that the service uses. In the backend's own process this returns only if that process cannot begin.
fn backend_of<B: Backend + 'static>(
    flags: &Flags,
    backend: impl FnOnce(&Flags) -> std::io::Result<B>,
) -> std::io::Result<Arc<dyn Backend>> {
    if flags.serve_backend {
        let backend = Arc::new(backend(flags)?);
        confine::<B>(flags, Processes::None);
        // The other half is the service's.
        let memory = flags.memory.map_or_else(bytes_for_clients, |mib| mib << 20);
        let budget = Budget::new(memory / 2).with_large(limits::LARGE_BUFFERS.quota());
        let budget = if flags.share_weights { budget.with_common() } else { budget };
        give_back_after(&budget)?;
        match isolation::serve(backend, budget)? {}
    }
    if flags.backend_process {
        // This very program, whatever has come to lie in its place.
        let again = || {
            let mut command = Command::new("/proc/self/exe");
            let mut arguments = std::env::args_os();
            arguments.next().map(|name| command.arg0(name));
            command.args(arguments).arg(SERVE_BACKEND);
            command
        };
        return Ok(Arc::new(Isolated::start(again)?));
    }
    Ok(Arc::new(backend(flags)?))
}

/// Clients hand over many descriptors.
fn raise_descriptor_limit() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(_, hard)| setrlimit(Resource::RLIMIT_NOFILE, hard, hard));
    if let Err(why) = raised {
        log::warn!("the limit of open files stays as it is: {why}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Option<Flags>, String> {
        Flags::parse(text.split_whitespace().map(String::from))
    }

    #[test]
    fn flags_are_read() {
        let flags = parse("").unwrap().unwrap();
        assert_eq!(flags, Flags::default());
        assert_eq!(parse("--data none").unwrap().unwrap().data, None);
        let flags =
            parse("--service=unix:/a:b=c --socket-mode 0660 --data /d --store 8 --memory 64 --threads 3")
                .unwrap()
                .unwrap();
        let service = Endpoint::Unix("/a:b=c".into());
        let socket_mode = Some(0o660);
        let expected = Flags {
            service,
            socket_mode,
            data: Some("/d".into()),
            store: Some(8),
            memory: Some(64),
            threads: Some(3),
            ..Flags::default()
        };
        assert_eq!(flags, expected);
        let flags = parse("--atrace --threads 3").unwrap().unwrap();
        assert!(flags.atrace && flags.threads == Some(3) && !flags.backend_process);
        assert!(parse("--share-weights").unwrap().unwrap().share_weights && !flags.share_weights);
        let flags = parse("--threads 3 --backend-process").unwrap().unwrap();
        assert!(flags.backend_process && !flags.serve_backend && !flags.no_sandbox);
        assert!(parse("--no-sandbox").unwrap().unwrap().no_sandbox);
        assert!(parse("--backend-process --serve-backend").unwrap().unwrap().serve_backend);
        assert_eq!(parse("--threads 1 --help").unwrap(), None);
    }

    #[test]
    #[cfg(not(target_os = "android"))]
    fn data_are_kept_where_the_platform_keeps_such_things() {
        let with = |set: &[(&str, &str)]| {
            let found =
                |name: &str| set.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).into());
            directory_by(found)
        };
        let all = [("HOME", "/h"), ("XDG_STATE_HOME", "/x"), ("STATE_DIRECTORY", "/s/a:/s/b")];
        assert_eq!(with(&all), Some("/s/a".into()));
        assert_eq!(with(&all[..2]), Some("/x/nnhal".into()));
        assert_eq!(
            with(&[("HOME", "/h"), ("XDG_STATE_HOME", "relative")]),
            Some("/h/.local/state/nnhal".into())
        );
        assert_eq!(with(&[("STATE_DIRECTORY", "")]), None);
    }

    #[test]
    fn wrong_flags_are_named() {
        for (text, named) in [
            ("--servce unix:/a", "--servce"),
            ("unix:/a", "unix:/a"),
            ("--service", "--service needs"),
            ("--service unix:", "expected unix:PATH"),
            ("--service tcp:1", "expected unix:PATH"),
            ("--socket-mode rw", "\"rw\""),
            ("--socket-mode 7777", "\"7777\""),
            ("--store much", "much"),
            ("--memory 15", "expected 16 to"),
            ("--memory 99999999999", "99999999999"),
            ("--threads 0", "\"0\""),
            ("--threads many", "many"),
            ("--threads 1000000", "1000000"),
            ("--atrace=no", "--atrace=no"),
            ("--backend-process=yes", "--backend-process=yes"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(named), "{text}: {error}");
        }
    }
}
