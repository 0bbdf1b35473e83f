//! Products of bf16 panels on AMX tiles, in inline assembly because the intrinsics are not stable.
//! A tile register holds 16 rows of 64 bytes: 16 x 32 bf16 elements, or 16 x 16 f32 sums.
//!
//! References: Intel, "Architecture Instruction Set Extensions Programming Reference", chapter
//! "Intel AMX instruction set reference"; Linux, `Documentation/arch/x86/xstate.rst`.
#![expect(unsafe_code, reason = "instructions that Rust has no safe functions for")]

use std::arch::asm;
use std::arch::x86_64::__cpuid_count;
use std::marker::PhantomData;
use std::sync::OnceLock;

use super::tiles::{Line, PANEL_LINES};

pub(super) fn available() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    *FOUND.get_or_init(|| {
        // Leaf 7: AMX-BF16 is bit 22 of edx, AMX-TILE bit 24. Packing needs AVX-512.
        let known = super::tiles::available() && {
            let highest = __cpuid_count(0, 0).eax;
            let features = if highest >= 7 { __cpuid_count(7, 0).edx } else { 0 };
            features & (1 << 22) != 0 && features & (1 << 24) != 0
        };
        known && permitted()
    })
}

/// Requests the tile registers from Linux, which enables them only on request. Returns false if
/// Linux refuses.
#[cfg(target_os = "linux")]
fn permitted() -> bool {
    const ARCH_PRCTL: i64 = 158;
    const ARCH_REQ_XCOMP_PERM: i64 = 0x1023;
    const XFEATURE_XTILEDATA: i64 = 18;
    let result: i64;
    // SAFETY: a system call with two integers, which changes no memory.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") ARCH_PRCTL => result,
            in("rdi") ARCH_REQ_XCOMP_PERM,
            in("rsi") XFEATURE_XTILEDATA,
            out("rcx") _,
            out("r11") _,
            options(nostack),
        );
    }
    result == 0
}

#[cfg(not(target_os = "linux"))]
fn permitted() -> bool {
    false
}

/// Operand of `ldtilecfg`: eight tiles of 16 rows of 64 bytes.
#[repr(C, align(64))]
struct Shapes {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    bytes: [u16; 16],
    rows: [u8; 16],
}

static SHAPES: Shapes = {
    let (mut bytes, mut rows) = ([0; 16], [0; 16]);
    let mut tile = 0;
    while tile < 8 {
        bytes[tile] = 64;
        rows[tile] = 16;
        tile += 1;
    }
    Shapes { palette: 1, start_row: 0, reserved: [0; 14], bytes, rows }
};

/// This thread's tile registers, released on drop. Only one instance per thread may exist at a
/// time.
#[derive(Debug)]
pub(super) struct Tiles(PhantomData<*const ()>);

impl Tiles {
    pub(super) fn configure() -> Option<Self> {
        if !available() {
            return None;
        }
        // SAFETY: the instruction is available, and reads the 64 bytes of a valid description.
        unsafe {
            asm!("ldtilecfg [{}]", in(reg) &raw const SHAPES, options(nostack, readonly, preserves_flags));
        }
        Some(Self(PhantomData))
    }

    /// Computes `to = a b` or `to += a b` for a left and a right panel of equal depth. The result
    /// is 32 x 32 sums, in rows `stride` elements apart.
    ///
    /// # Safety
    /// 32 rows of 32 elements at `to` must be valid to read and write.
    #[inline]
    #[expect(clippy::unused_self, reason = "`self` is the proof that the registers are shaped")]
    pub(super) unsafe fn multiply(&self, a: &[Line], b: &[Line], to: *mut f32, stride: usize, add: bool) {
        assert!(a.len() == b.len() && a.len().is_multiple_of(PANEL_LINES), "panels of one depth");
        let steps = a.len() / PANEL_LINES;
        let bytes = stride * size_of::<f32>();
        // SAFETY: `self` has set up the registers; each step reads 2 KiB of each panel, as
        // asserted; the caller vouches for `to`.
        unsafe {
            asm!(
                "test {add:e}, {add:e}",
                "jz 2f",
                "tileloadd tmm0, [{to} + {bytes}*1]",
                "tileloadd tmm1, [{to} + {bytes}*1 + 64]",
                "tileloadd tmm2, [{below} + {bytes}*1]",
                "tileloadd tmm3, [{below} + {bytes}*1 + 64]",
                "jmp 3f",
                "2:",
                "tilezero tmm0",
                "tilezero tmm1",
                "tilezero tmm2",
                "tilezero tmm3",
                "3:",
                "test {steps}, {steps}",
                "jz 5f",
                "4:",
                "tileloadd tmm4, [{a} + {line}*1]",
                "tileloadd tmm6, [{b} + {line}*1]",
                "tdpbf16ps tmm0, tmm4, tmm6",
                "tileloadd tmm7, [{b} + {line}*1 + 1024]",
                "tdpbf16ps tmm1, tmm4, tmm7",
                "tileloadd tmm5, [{a} + {line}*1 + 1024]",
                "tdpbf16ps tmm2, tmm5, tmm6",
                "tdpbf16ps tmm3, tmm5, tmm7",
                "add {a}, 2048",
                "add {b}, 2048",
                "dec {steps}",
                "jnz 4b",
                "5:",
                "tilestored [{to} + {bytes}*1], tmm0",
                "tilestored [{to} + {bytes}*1 + 64], tmm1",
                "tilestored [{below} + {bytes}*1], tmm2",
                "tilestored [{below} + {bytes}*1 + 64], tmm3",
                a = inout(reg) a.as_ptr() => _,
                b = inout(reg) b.as_ptr() => _,
                steps = inout(reg) steps => _,
                add = in(reg) i32::from(add),
                to = in(reg) to,
                below = in(reg) to.wrapping_add(16 * stride),
                bytes = in(reg) bytes,
                line = in(reg) size_of::<Line>(),
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nostack),
            );
        }
    }
}

impl Drop for Tiles {
    fn drop(&mut self) {
        // SAFETY: `self` proves that the instruction is available.
        unsafe {
            asm!("tilerelease", options(nostack, nomem, preserves_flags));
        }
    }
}
