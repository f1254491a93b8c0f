//! The local check allocates nothing: counted, so it does not depend on the machine.

#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![expect(
    unsafe_code,
    reason = "an allocator that counts has to be an allocator"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use tenure::{Elector, MemoryStore, Settings};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call is handed on to the system's allocator unchanged; counting touches
// only a thread-local that needs no allocation and no destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promise about the layout is handed on.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the pointer came from the system's allocator, by `alloc` above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[tokio::test]
async fn is_leader_allocates_nothing() {
    let elector = Elector::start(MemoryStore::new(), Settings::new("k").unwrap()).unwrap();
    let tenure = elector.elected().await.unwrap();
    assert!(elector.is_leader());
    let before = ALLOCATIONS.get();
    for _ in 0..1000 {
        assert!(elector.is_leader() && tenure.is_valid());
        assert!(!elector.remaining().is_zero());
    }
    assert_eq!(ALLOCATIONS.get() - before, 0);
    elector.stop().await;
    assert!(!elector.is_leader());
}
