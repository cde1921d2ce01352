//! Extension objects, by which a driver offers more than the interface has.

use super::driver::Driver;
use super::error::ClientError;
use binder::{SIBinder, StatusCode};

/// The extension object of `binder`; `None` where it has none. An error if the driver died meanwhile.
pub(super) fn extension(driver: &Driver, binder: &SIBinder) -> Result<Option<SIBinder>, ClientError> {
    if let Ok(Some(extension)) = binder.get_extension() {
        return Ok(Some(extension));
    }
    // Over RPC the binder library does not ask by itself.
    let ask = || -> Result<Option<SIBinder>, StatusCode> {
        let proxy = binder.as_remote().ok_or(StatusCode::InvalidOperation)?;
        let question = proxy.prepare_transact(true)?;
        let answer = proxy.submit_transact(binder::EXTENSION_TRANSACTION, &question, 0)?;
        answer.map_or(Ok(None), |mut answer| answer.read())
    };
    ask().or_else(|why| {
        if why == StatusCode::DeadObject || driver.is_dead() {
            return Err(driver.lost("getExtension"));
        }
        log::debug!("no extension: {why}");
        Ok(None)
    })
}
