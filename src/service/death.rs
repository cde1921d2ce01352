//! Watches on the death of a client's object, which end when they are no longer needed.
//!
//! A link that is not undone stays with the object for as long as its client keeps that: a client that hands over the
//! same object with each call would make the list grow without bound.

use binder::{DeathRecipient, SIBinder, WIBinder};
use std::sync::Arc;

/// Calls a function once, should an object's process die before this is dropped.
pub(super) struct DeathWatch {
    object: SIBinder,
    recipient: Arc<Recipient>,
}

struct Recipient(Box<dyn Fn() + Send + Sync>);

impl DeathRecipient for Recipient {
    fn binder_died(&self, _: &WIBinder) {
        (self.0)();
    }
}

impl DeathWatch {
    /// `None` where there is nothing to watch: an object of this very process does not die, and one that is dead
    /// already shows when it is called.
    pub fn new(object: SIBinder, died: Box<dyn Fn() + Send + Sync>) -> Option<Self> {
        let recipient = Arc::new(Recipient(died));
        match object.link_to_death_arc(&recipient) {
            Ok(()) => Some(DeathWatch { object, recipient }),
            Err(why) => {
                log::debug!("an object is not watched: {why}");
                None
            }
        }
    }
}

impl Drop for DeathWatch {
    fn drop(&mut self) {
        // It fails where the object is dead: then there is no link any more.
        let _ = self.object.unlink_to_death_arc(&self.recipient);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aidl::{BnFmqBurstCallback, IFmqBurstCallback};
    use binder::entry::{Client, Endpoint, Uri, WireProfile, WireVersion};
    use binder::rpc::RpcServer;
    use binder::{Interface, Strong};
    use std::sync::mpsc::channel;
    use std::time::Duration;

    struct Nobody;

    impl Interface for Nobody {}

    impl IFmqBurstCallback for Nobody {
        fn getMemories(&self, _: &[i32]) -> binder::BinderResult<Vec<crate::aidl::Memory>> {
            Ok(Vec::new())
        }
    }

    #[test]
    fn a_link_ends_with_its_watch_and_death_is_told_until_then() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let server = RpcServer::setup_unix_server(&path).unwrap();
        server.set_android13plus(WireVersion::MAX.get());
        let object: Strong<dyn IFmqBurstCallback> = BnFmqBurstCallback::new_binder(Nobody);
        server.set_root(object.as_binder()).unwrap();
        let _accepting = server.run_background();
        let uri = Uri::new(Endpoint::unix(&path)).with_wire(WireProfile::Android13Plus(WireVersion::MAX));
        let client = Client::open_with(uri, |o, _| o.incoming_connections = Some(1)).unwrap();
        let object = client.session().unwrap().get_root().unwrap();
        let (told, heard) = channel();
        let watch = |name: &'static str| {
            let told = told.clone();
            DeathWatch::new(object.clone(), Box::new(move || told.send(name).unwrap()))
                .expect("a remote object")
        };
        for _ in 0..3 {
            let watch = watch("ended");
            let recipient = watch.recipient.clone();
            assert_eq!(Arc::weak_count(&recipient), 1, "the object knows it");
            drop(watch);
            assert_eq!(Arc::weak_count(&recipient), 0, "the object has forgotten it");
        }
        let _watch = watch("alive");
        server.terminate();
        assert_eq!(heard.recv_timeout(Duration::from_secs(20)), Ok("alive"));
        assert!(heard.try_recv().is_err());
    }
}
