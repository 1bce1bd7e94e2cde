//! Splits an amount among guests within their capacities.

use crate::account::apportion;

/// Splits `amount` in proportion to the capacities, no part beyond its own.
///
/// The parts add up to `amount`, or to all capacities where these are less.
pub fn share_out(amount: u64, capacities: &[u64]) -> Vec<u64> {
    let sum = capacities.iter().fold(0_u64, |sum, &part| sum.saturating_add(part));
    if amount >= sum {
        return capacities.to_vec();
    }
    // In proportion and less than the sum: no part exceeds its capacity.
    apportion(amount, capacities, 0).0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_larger_capacity_has_a_larger_part() {
        assert_eq!(share_out(30, &[40, 20, 0]), [20, 10, 0]);
        assert_eq!(share_out(100, &[40, 20, 0]), [40, 20, 0]);
        assert_eq!(share_out(7, &[]), [0; 0]);
    }

    proptest! {
        #[test]
        fn parts_add_up_and_keep_to_their_capacities(
            amount in 0_u64..1 << 40, capacities in prop::collection::vec(0_u64..1 << 36, 0..20),
        ) {
            let parts = share_out(amount, &capacities);
            prop_assert!(parts.iter().zip(&capacities).all(|(part, capacity)| part <= capacity));
            prop_assert_eq!(parts.iter().sum::<u64>(), amount.min(capacities.iter().sum()));
        }
    }
}
