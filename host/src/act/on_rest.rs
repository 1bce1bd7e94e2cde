//! The callback for a ksmd that has come to rest at the end of a pass.

use std::fmt;
use std::sync::Arc;

/// A callback for a ksmd that has come to rest.
#[derive(Clone)]
pub(super) struct RestCallback(pub(super) Arc<dyn Fn() + Send + Sync>);

impl Default for RestCallback {
    fn default() -> Self {
        Self(Arc::new(|| {}))
    }
}

impl fmt::Debug for RestCallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnRest")
    }
}
