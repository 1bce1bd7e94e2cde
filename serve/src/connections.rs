//! The open connections, their limits, and the eviction of idle ones.
//!
//! A connection without a request in progress is idle: its client sends a request slowly, reads slowly, or is silent.
//! When all slots are taken, the oldest idle connection of the address with the most connections is closed. So clients
//! that only hold connections open, however many, never keep other clients from being served.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::task::AbortHandle;

/// The table of open connections, with its limits.
#[derive(Debug)]
pub struct ConnectionLimiter {
    most: usize,
    of_one_address: usize,
    table: Mutex<ConnectionTable>,
}

#[derive(Debug, Default)]
struct ConnectionTable {
    /// Connections by number: the oldest first.
    open: BTreeMap<u64, OpenConnection>,
    next: u64,
}

#[derive(Debug)]
struct OpenConnection {
    address: IpAddr,
    /// Requests in progress.
    answers: usize,
    /// Aborts the connection's task. `None` until the task has started.
    task: Option<AbortHandle>,
}

/// A connection's slot, released on drop.
#[derive(Debug)]
pub struct ConnectionSlot {
    connections: Arc<ConnectionLimiter>,
    number: u64,
}

/// A guard that keeps its connection from being idle.
#[derive(Debug)]
pub struct BusyGuard {
    connections: Arc<ConnectionLimiter>,
    number: u64,
}

impl ConnectionLimiter {
    /// Creates a table for `most` connections, and for `of_one_address` from one address.
    pub fn new(most: usize, of_one_address: usize) -> Arc<Self> {
        Arc::new(Self { most, of_one_address, table: Mutex::default() })
    }

    /// Allocates a slot for a connection. `None` if no slot is free and none can be freed, because requests are in
    /// progress on all connections.
    pub fn acquire_slot(self: &Arc<Self>, address: IpAddr) -> Option<ConnectionSlot> {
        let address = client_address(address);
        let mut table = self.table();
        let has_room = (table.count_connections(address) < self.of_one_address || table.close_idle_of(address))
            && (table.open.len() < self.most || table.close_idle_of_the_heaviest());
        if !has_room {
            return None;
        }
        let number = table.next;
        table.next += 1;
        table.open.insert(number, OpenConnection { address, answers: 0, task: None });
        Some(ConnectionSlot { connections: Arc::clone(self), number })
    }

    /// Closes an idle connection to free a descriptor.
    pub fn close_one(&self) {
        self.table().close_idle_of_the_heaviest();
    }

    /// Returns the number of open connections.
    pub fn len(&self) -> usize {
        self.table().open.len()
    }

    /// Returns true if there is no open connection.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn table(&self) -> MutexGuard<'_, ConnectionTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConnectionSlot {
    /// Sets the task that serves the connection.
    pub fn set_task(&self, task: AbortHandle) {
        if let Some(connection) = self.connections.table().open.get_mut(&self.number) {
            connection.task = Some(task);
        }
    }

    /// Marks a request as in progress until the returned guard is dropped.
    pub fn busy(&self) -> BusyGuard {
        BusyGuard::new(&self.connections, self.number)
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.connections.table().open.remove(&self.number);
    }
}

impl BusyGuard {
    fn new(connections: &Arc<ConnectionLimiter>, number: u64) -> Self {
        if let Some(connection) = connections.table().open.get_mut(&number) {
            connection.answers += 1;
        }
        Self { connections: Arc::clone(connections), number }
    }
}

impl BusyGuard {
    /// Returns the client's address; `None` once the connection is closed.
    pub fn address(&self) -> Option<IpAddr> {
        self.connections.table().open.get(&self.number).map(|connection| connection.address)
    }
}

impl Clone for BusyGuard {
    fn clone(&self) -> Self {
        Self::new(&self.connections, self.number)
    }
}

impl Drop for BusyGuard {
    fn drop(&mut self) {
        if let Some(connection) = self.connections.table().open.get_mut(&self.number) {
            connection.answers -= 1;
        }
    }
}

impl ConnectionTable {
    fn count_connections(&self, address: IpAddr) -> usize {
        self.open.values().filter(|one| one.address == address).count()
    }

    /// Closes the oldest idle connection of an address. Returns true if there was one.
    fn close_idle_of(&mut self, address: IpAddr) -> bool {
        let idle = |one: &OpenConnection| one.address == address && one.answers == 0 && one.task.is_some();
        let Some(number) = self.open.iter().find(|(_, one)| idle(one)).map(|(number, _)| *number) else {
            return false;
        };
        let closed = self.open.remove(&number);
        if let Some(task) = closed.and_then(|one| one.task) {
            task.abort();
        }
        true
    }

    fn close_idle_of_the_heaviest(&mut self) -> bool {
        let mut of_each: BTreeMap<IpAddr, usize> = BTreeMap::new();
        for one in self.open.values() {
            *of_each.entry(one.address).or_default() += 1;
        }
        let mut addresses: Vec<(usize, IpAddr)> =
            of_each.into_iter().map(|(address, count)| (count, address)).collect();
        addresses.sort_unstable_by(|a, b| b.cmp(a));
        addresses.into_iter().any(|(_, address)| self.close_idle_of(address))
    }
}

/// Maps an address to the one that represents its client: an IPv6 client has a /64 network, and each client of this
/// host has all its loopback addresses.
fn client_address(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        own if own.is_loopback() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V4(four) => four.into(),
        IpAddr::V6(six) => IpAddr::from((u128::from(six) & !u128::from(u64::MAX)).to_be_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
    const B: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));

    /// Spawns a task that never ends by itself.
    fn served(place: &ConnectionSlot) -> tokio::task::JoinHandle<()> {
        let task = tokio::spawn(std::future::pending());
        place.set_task(task.abort_handle());
        task
    }

    #[tokio::test]
    async fn the_oldest_idle_connection_of_the_heaviest_address_makes_room() {
        let connections = ConnectionLimiter::new(4, 3);
        let places: Vec<ConnectionSlot> =
            [B, A, A, A].iter().map(|address| connections.acquire_slot(*address).unwrap()).collect();
        let mut tasks: Vec<_> = places.iter().map(served).collect();
        let busy = places[1].busy();
        let fifth = connections.acquire_slot(B).unwrap();
        let closed = tasks.remove(2);
        assert!(closed.await.unwrap_err().is_cancelled(), "the oldest of A that awaits no answer");
        assert!(tasks.iter().all(|task| !task.is_finished()), "B's is older still");
        assert_eq!(connections.len(), 4);
        drop((busy, fifth, places));
        assert!(connections.is_empty());
    }

    #[tokio::test]
    async fn an_address_has_its_bound_and_busy_connections_stay() {
        let connections = ConnectionLimiter::new(10, 2);
        let places: Vec<ConnectionSlot> = (0..2).map(|_| connections.acquire_slot(A).unwrap()).collect();
        let tasks: Vec<_> = places.iter().map(served).collect();
        let busy: Vec<BusyGuard> = places.iter().map(ConnectionSlot::busy).collect();
        assert!(connections.acquire_slot(A).is_none());
        assert!(connections.acquire_slot(B).is_some());
        drop(busy);
        assert!(connections.acquire_slot(A).is_some());
        drop(tasks);
    }

    #[test]
    fn addresses_of_one_ipv6_network_count_as_one() {
        let of = |text: &str| client_address(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:10.0.0.1"), A);
        for own in ["127.0.0.1", "127.1.2.3", "::1", "::ffff:127.9.9.9"] {
            assert_eq!(of(own), IpAddr::from(Ipv4Addr::LOCALHOST));
        }
    }
}
