// SPDX-License-Identifier: MIT OR Apache-2.0
//! Numbers of cells in references.

/// The number that a reference to a cell is, as the cell's number is printed.
pub(super) fn cell_number(reference: &str) -> Option<u64> {
    reference.parse().ok().filter(|number: &u64| number.to_string() == reference)
}

#[cfg(test)]
mod tests {
    use super::cell_number;

    #[test]
    fn only_a_number_as_it_is_printed_is_that_of_a_cell() {
        assert_eq!((cell_number("5"), cell_number("18446744073709551615")), (Some(5), Some(u64::MAX)));
        for other in ["+5", "005", "-5", "5 ", "5a", "", "18446744073709551616"] {
            assert_eq!(cell_number(other), None, "{other}");
        }
    }
}
