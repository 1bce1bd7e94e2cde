//! ksmith around its core: observe the host, act on it, keep a record and show it.

pub mod lab;
pub mod observe;
pub mod root;
