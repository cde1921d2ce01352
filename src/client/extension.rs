//! Extension objects, by which a driver offers more than the interface has.

use binder::{SIBinder, StatusCode};

/// The extension object of `binder`; `None` where it has none.
pub(super) fn extension(binder: &SIBinder) -> Option<SIBinder> {
    if let Ok(Some(extension)) = binder.get_extension() {
        return Some(extension);
    }
    // Over RPC the binder library does not ask by itself.
    let ask = || -> Result<Option<SIBinder>, StatusCode> {
        let proxy = binder.as_remote().ok_or(StatusCode::InvalidOperation)?;
        let question = proxy.prepare_transact(true)?;
        let answer = proxy.submit_transact(binder::EXTENSION_TRANSACTION, &question, 0)?;
        answer.map_or(Ok(None), |mut answer| answer.read())
    };
    ask().unwrap_or_else(|why| {
        log::debug!("no extension: {why}");
        None
    })
}
