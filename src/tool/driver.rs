//! The driver that `--service` names, and how the tool gets to it.

use super::error::ToolError;
use crate::client::{self, Address, Driver};
use crate::daemon::embedded;
use std::path::PathBuf;
use std::str::FromStr;

/// The driver that a command talks to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServiceName {
    /// In this process, behind a socket of its own.
    Embedded,
    /// In a process of its own.
    At(Address),
}

impl FromStr for ServiceName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "embedded" {
            return Ok(Self::Embedded);
        }
        text.parse().map(Self::At).map_err(|_| "expected embedded, unix:PATH or binder:INSTANCE".into())
    }
}

impl std::fmt::Display for ServiceName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Embedded => f.write_str("embedded"),
            Self::At(address) => address.fmt(f),
        }
    }
}

/// How to connect, and what an embedded driver is started with.
#[derive(Clone, Debug, Default)]
pub struct ServiceOptions {
    pub client: client::ConnectOptions,
    /// Worker threads of an embedded driver; `None` lets it choose.
    pub threads: Option<usize>,
    /// Where an embedded driver keeps what must survive it.
    pub data: Option<PathBuf>,
}

/// Connects to the driver, which is started first where it is an embedded one.
pub fn connect(service: &ServiceName, options: &ServiceOptions) -> Result<Driver, ToolError> {
    match service {
        ServiceName::At(address) => Ok(Driver::connect(address, &options.client)?),
        ServiceName::Embedded => {
            let ServiceOptions { client, threads, data } = options.clone();
            let daemon = embedded::start(&embedded::Options { threads, data, ..Default::default() })?;
            let address = Address::Unix(daemon.socket().into());
            Ok(Driver::connect(&address, &client)?.keeping(daemon))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_names_round_trip() {
        for text in ["embedded", "unix:/run/nn.sock", "binder:nnhal"] {
            assert_eq!(text.parse::<ServiceName>().expect(text).to_string(), text);
        }
        for text in ["", "unix:", "unix", "binder:", "tcp:1", "embedded:x"] {
            assert!(text.parse::<ServiceName>().is_err(), "{text}");
        }
    }
}
