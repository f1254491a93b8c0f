//! What a local check costs, beside an atomic load and a bare read of the clock.
//!
//! `cargo bench -p tenure --bench check`

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

use criterion::{Criterion, criterion_group, criterion_main};
use tenure::{BootClock, Clock, Elector, MemoryStore, Settings};

fn check(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let settings = Settings::new("bench").expect("a good key");
    let elector = Elector::start(MemoryStore::new(), settings).expect("it starts");
    let tenure = runtime.block_on(elector.elected()).expect("it leads");
    let number = AtomicU64::new(1);

    let mut group = criterion.benchmark_group("check");
    group.bench_function("atomic load", |b| {
        b.iter(|| black_box(&number).load(Ordering::Acquire));
    });
    group.bench_function("clock read", |b| b.iter(|| black_box(&BootClock).now()));
    group.bench_function("Tenure::is_valid", |b| {
        b.iter(|| black_box(&tenure).is_valid());
    });
    group.bench_function("Elector::is_leader", |b| {
        b.iter(|| black_box(&elector).is_leader());
    });
    group.bench_function("Elector::remaining", |b| {
        b.iter(|| black_box(&elector).remaining());
    });
    group.finish();
    runtime.block_on(elector.stop());
}

criterion_group!(benches, check);
criterion_main!(benches);
