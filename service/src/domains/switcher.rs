//! Switches guests in the background: un-merging a large guest takes seconds, and a monitor may hang.

use crossbeam_channel::{Receiver, Sender, unbounded};
use ksmith_core::guest::GuestId;

use ksmith_host::guests::Target;
use ksmith_host::root::Root;

/// What came of an order.
#[derive(Debug)]
pub struct Done {
    /// The guest's first process.
    pub id: GuestId,
    /// The guest's name.
    pub name: String,
    /// Whether it was to be switched on.
    pub on: bool,
    /// Why it failed, if it did.
    pub result: Result<(), String>,
}

/// Gives orders and takes in what came of them.
#[derive(Debug)]
pub struct Switcher {
    root: Root,
    sender: Sender<Done>,
    outcomes: Receiver<Done>,
}

impl Switcher {
    /// Nothing to do yet.
    pub fn new(root: Root) -> Self {
        let (sender, outcomes) = unbounded();
        Self { root, sender, outcomes }
    }

    /// Has a guest switched. Each order has a thread of its own, so that a monitor that hangs delays no other guest.
    pub fn order(&self, target: Target, on: bool) {
        let (root, sender) = (self.root.clone(), self.sender.clone());
        let (id, name) = (target.id, target.name.clone());
        let work = move || {
            let result = target.switch(&root, on, false).map(|_| ()).map_err(|error| error.to_string());
            // At the daemon's end there is no receiver any more.
            let _ = sender.send(Done { id, name: target.name, on, result });
        };
        if let Err(error) = std::thread::Builder::new().name("switch".to_owned()).spawn(work) {
            let _ =
                self.sender.send(Done { id, name, on, result: Err(format!("no thread for its switch: {error}")) });
        }
    }

    /// The outcome of an order, if there is a new one.
    pub fn outcome(&self) -> Option<Done> {
        self.outcomes.try_recv().ok()
    }
}
