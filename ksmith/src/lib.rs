//! ksmith around its core: observe the host, act on it, keep a record and show it.

pub mod act;
pub mod controller;
pub mod lab;
pub mod root;
pub mod show;
