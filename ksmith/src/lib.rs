//! ksmith around its core: observe the host, act on it, keep a record and show it.

pub mod act;
pub mod cli;
pub mod config;
pub mod control;
pub mod controller;
pub mod daemon;
pub mod demo;
pub mod doctor;
pub mod domains;
pub mod estimate;
pub mod guest_service;
pub mod guests;
pub mod job;
pub mod ksmd;
pub mod lab;
pub mod live;
pub mod live_bench;
pub mod log;
pub mod observe;
pub mod own_use;
pub mod root;
pub mod show;
pub mod signals;
pub mod systemd;
pub mod user_socket;
pub mod witness;
