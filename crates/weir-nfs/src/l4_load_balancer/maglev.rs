//! Consistent hashing by a table of turns.

use crate::load_balancer::mixed;
use std::net::{IpAddr, SocketAddr};

/// Places of a table: a prime, 100 times the most servers (Maglev, §5.3: then the load differs by a percent).
pub(super) const PLACES: u64 = 65_537;

/// A server's number in the configuration's list, by hash: the population of §3.4. Each server goes through all places in an
/// order of its own, and servers take the next free one in turns; one of half the weight takes every second turn.
pub(super) fn table(servers: &[(SocketAddr, u16)]) -> Vec<u16> {
    const FREE: u16 = u16::MAX;
    let heaviest = servers.iter().map(|(_, weight)| u64::from(*weight)).max().unwrap_or(0);
    if heaviest == 0 {
        return Vec::new();
    }
    let mut orders: Vec<_> = servers.iter().map(|(server, _)| Order::of(*server)).collect();
    let mut table = vec![FREE; PLACES as usize];
    let mut free = table.len();
    for turn in 0.. {
        for ((number, order), (_, weight)) in (0..).zip(&mut orders).zip(servers) {
            let had = |turns: u64| turns * u64::from(*weight) / heaviest;
            if had(turn + 1) == had(turn) {
                continue;
            }
            // There is a free one, and the order has each place once.
            let place = order.find(|place| table.get(*place).is_some_and(|n| *n == FREE));
            if let Some(number_at) = place.and_then(|place| table.get_mut(place)) {
                *number_at = number;
                free -= 1;
            }
            if free == 0 {
                return table;
            }
        }
    }
    table
}

/// A server's order of all places.
struct Order {
    next: u64,
    skip: u64,
}

impl Order {
    /// By the server alone, so that it is the same whoever else is in the list.
    fn of(server: SocketAddr) -> Self {
        let (bits, version) = match server.ip() {
            IpAddr::V4(address) => (u128::from(address.to_bits()), 4),
            IpAddr::V6(address) => (address.to_bits(), 6),
        };
        let words = [bits as u64, (bits >> 64) as u64, u64::from(server.port()) << 8 | version];
        let hash = words.into_iter().fold(0, |hash, word| mixed(hash ^ mixed(word)));
        // The number of places is prime: any step leads through all of them.
        Order { next: hash % PLACES, skip: mixed(hash) % (PLACES - 1) + 1 }
    }
}

impl Iterator for Order {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let place = self.next as usize;
        self.next = (self.next + self.skip) % PLACES;
        Some(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn servers(numbers: impl IntoIterator<Item = u8>) -> Vec<(SocketAddr, u16)> {
        numbers.into_iter().map(|n| (SocketAddr::from(([10, 0, 0, n], 80)), 1)).collect()
    }

    fn shares(table: &[u16], count: usize) -> Vec<usize> {
        let mut shares = vec![0; count];
        table.iter().for_each(|number| shares[usize::from(*number)] += 1);
        shares
    }

    #[test]
    fn servers_of_equal_weight_have_equal_shares_and_others_theirs() {
        for count in [1, 2, 7, 100] {
            let shares = shares(&table(&servers(0..count)), count.into());
            let even = PLACES as usize / usize::from(count);
            assert!(shares.iter().all(|n| n.abs_diff(even) <= 1), "{shares:?}");
        }
        let mut weighted = servers(0..3);
        (weighted[0].1, weighted[1].1, weighted[2].1) = (100, 50, 1);
        let shares = shares(&table(&weighted), 3);
        let even = PLACES as usize / 151;
        assert!(shares[0].abs_diff(100 * even) < even && shares[1].abs_diff(50 * even) < even);
        assert!(shares[2].abs_diff(even) <= 5, "{shares:?}");
    }

    #[test]
    fn when_a_server_goes_hardly_a_place_of_the_others_changes() {
        let all = servers(0..20);
        let fewer = servers((0..20).filter(|n| *n != 7));
        let (before, after) = (table(&all), table(&fewer));
        let mut moved = 0;
        for (a, b) in before.iter().zip(&after) {
            let (a, b) = (all[usize::from(*a)], fewer[usize::from(*b)]);
            moved += usize::from(a != b && a != all[7]);
        }
        // Its own are a twentieth. Of the rest a few change by the turns (Maglev, Fig. 12).
        assert!(moved < PLACES as usize / 20, "{moved} of {PLACES}");
        assert!(moved > 0, "the comparison sees nothing");
    }

    #[test]
    fn the_order_of_the_list_moves_few() {
        let all = servers(0..20);
        let reversed: Vec<_> = all.iter().rev().copied().collect();
        let (before, after) = (table(&all), table(&reversed));
        let pairs = before.iter().zip(&after);
        let moved = pairs.filter(|(a, b)| all[usize::from(**a)] != reversed[usize::from(**b)]);
        assert!(moved.count() < PLACES as usize / 5);
    }

    #[test]
    fn without_servers_there_is_no_table() {
        assert!(table(&[]).is_empty());
    }
}
