//! What transports of ours over sockets have in common: they add to one of rsbinder's, and leave most to it. Nothing is decided
//! here.

/// The methods of `RpcTransport` that a transport leaves to its field `inner`: all but those that move bytes.
macro_rules! left_to_inner {
    () => {
        fn peer_identity(&self) -> binder::rpc::PeerIdentity {
            self.inner.peer_identity()
        }

        fn describe(&self) -> &str {
            self.inner.describe()
        }

        fn set_read_timeout(&self, timeout: Option<std::time::Duration>) -> binder::rpc::RpcResult<()> {
            self.inner.set_read_timeout(timeout)
        }

        fn set_write_timeout(&self, timeout: Option<std::time::Duration>) -> binder::rpc::RpcResult<()> {
            self.inner.set_write_timeout(timeout)
        }

        fn set_liveness(&self, timeout: Option<std::time::Duration>) -> binder::rpc::RpcResult<()> {
            self.inner.set_liveness(timeout)
        }

        fn peer_closed(&self) -> Option<bool> {
            self.inner.peer_closed()
        }

        fn shutdown_handle(&self) -> Option<Box<dyn FnOnce() + Send>> {
            self.inner.shutdown_handle()
        }

        fn shutdown(&self) -> binder::rpc::RpcResult<()> {
            self.inner.shutdown()
        }

        fn supports_fd_passing(&self) -> bool {
            self.inner.supports_fd_passing()
        }
    };
}
pub(crate) use left_to_inner;
