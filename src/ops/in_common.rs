//! Weights and constants that equal ones of other models share their memory with, where the driver was asked for that.
//!
//! It must not know whose those are.

use super::{by_parts, Interrupt, OpError};
use crate::memory::{checksum_share, Account, AlignedBuf, Common};

/// A buffer that is written no more, in memory that it has in common with equal ones of the thread's driver. It comes by yield
/// points.
pub fn in_common(buffer: AlignedBuf, interrupt: &dyn Interrupt) -> Result<AlignedBuf, OpError> {
    if buffer.len() < Common::LEAST {
        return Ok(buffer);
    }
    let Some(common) = Account::of_thread().common() else { return Ok(buffer) };
    let mut sum = 0u64;
    by_parts(interrupt, buffer.len(), |part| {
        sum = sum.wrapping_add(checksum_share(part.start as u64, &buffer[part]));
        Ok::<_, OpError>(())
    })?;
    let (buffer, other) = match buffer.offered(&common, sum) {
        Ok(buffer) => return Ok(buffer),
        Err(others) => others,
    };
    let compared = by_parts(interrupt, buffer.len(), |part| match other.has(part.start, &buffer[part]) {
        Some(true) => Ok(()),
        _ => Err(Unequal::Differs),
    });
    match compared {
        Ok(()) => {
            // To free its own memory may take long.
            interrupt.before_waiting();
            Ok(buffer.in_memory_of(&other))
        }
        Err(Unequal::Differs) => Ok(buffer),
        Err(Unequal::Stopped(why)) => Err(why),
    }
}

/// Why buffers were not found to be equal.
enum Unequal {
    Differs,
    Stopped(OpError),
}

impl From<OpError> for Unequal {
    fn from(why: OpError) -> Self {
        Unequal::Stopped(why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Budget;
    use crate::ops::NeverInterrupted;

    fn made(bytes: &[u8]) -> AlignedBuf {
        in_common(AlignedBuf::copy_of(bytes).unwrap(), &NeverInterrupted).unwrap()
    }

    /// The first word counts once in a sum, and the second three times: three more of the one make up for one less of the other.
    fn of_the_same_sum(bytes: &[u8]) -> Vec<u8> {
        let sum = |bytes: &[u8]| checksum_share(0, bytes);
        let mut other = bytes.to_vec();
        (other[0], other[8]) = (bytes[0] + 3, bytes[8] - 1);
        assert!(sum(&other) == sum(bytes) && other != bytes);
        other
    }

    #[test]
    fn equal_bytes_of_one_driver_lie_in_one_place_and_no_others() {
        let bytes: Vec<u8> = (0..2 * Common::LEAST).map(|i| (i % 251) as u8 | 1).collect();
        let (plain, sharing) = (Budget::new(1 << 30), Budget::new(1 << 30).with_common());
        let other_driver = Budget::new(1 << 30).with_common();
        let on = |budget: &Budget, client, bytes: &[u8]| {
            let _account = budget.on_account_of(client);
            made(bytes)
        };
        let first = on(&sharing, 1, &bytes);
        let others = [(&sharing, 2), (&sharing, 1), (&other_driver, 2), (&plain, 1), (&plain, 2)];
        let others = others.map(|(budget, client)| on(budget, client, &bytes));
        assert!(others.iter().all(|other| other[..] == bytes[..]));
        let same = others.each_ref().map(|other| other.as_ptr() == first.as_ptr());
        assert_eq!(same, [true, true, false, false, false]);
        let forged = of_the_same_sum(&bytes);
        let unlike =
            [&forged[..], &bytes[1..], &bytes[..Common::LEAST - 1]].map(|bytes| on(&sharing, 2, bytes));
        assert!(unlike.iter().all(|other| other.as_ptr() != first.as_ptr()));
        assert!(unlike[0][..] == forged[..] && first[..] == bytes[..]);
    }
}
