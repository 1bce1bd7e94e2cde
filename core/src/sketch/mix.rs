//! A bijective mixer of 64 bits.

/// Mixes a number by SplitMix64's output function (Steele, Lea and Flood, OOPSLA 2014).
#[inline]
pub fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// A number in [0, 1) from the upper 53 bits.
pub(super) fn unit(x: u64) -> f64 {
    (x >> 11) as f64 / (1_u64 << 53) as f64
}

/// A small generator for the tests of this module's estimators.
#[cfg(test)]
pub(super) struct TestRng(pub u64);

#[cfg(test)]
impl TestRng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }
}
