//! The truth table, but for what takes minutes: `cargo xtask truth` prints it.

use tracer_tests::{
    cases::{self, Table},
    truth::alone,
};

/// Every row holds that is not marked as known not to.
#[test]
fn the_truth_table_holds() {
    let _alone = alone();
    let mut table = Table::default();
    cases::all().filter(|case| !case.full).for_each(|case| table.run(case));
    println!("{table}");
    assert_eq!(table.failed(false), 0, "rows failed:\n{table}");
}
