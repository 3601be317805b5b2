//! What a worker may still ask of the kernel.
//!
//! There are two layers, because a worker may be somebody else's program. The agent puts the first
//! one around the process before its program begins ([`starting`]): it has room for the dynamic
//! loader. The worker itself puts on the second, [`enter`], once it is attached and its device is
//! open, before its first packet: from then on it can open nothing and become nothing.
//! `docs/decisions/0006-sandbox.md` has the reasons, `docs/security.md` what it holds off.

mod filter;

use rustix::io::Errno;
use rustix::process::{DumpableBehavior, Signal};
use rustix::thread::{CapabilitiesSecureBits, CapabilitySet, CapabilitySets, Gid, Uid};
use seccompiler::BpfProgram;
use serde::{Deserialize, Serialize};

/// The system calls that a worker's work needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Profile {
    /// Runs NFs, or a device that is no device (the generator, null): memory, doorbells, the socket.
    Nf,
    /// Reads or writes a capture that it has opened.
    Capture,
    /// Receives from and sends to an interface that it has opened.
    Live,
}

/// What the agent tells a worker of its sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxSpec {
    /// The system calls that it keeps.
    pub profile: Profile,
    /// The user and group that it is to become. `None`: it is whom it is to be already.
    pub user: Option<u32>,
}

/// Why a worker has no sandbox; it then does not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SandboxError {
    /// It cannot become another user.
    #[error("the sandbox: cannot become user {user}: {source}; name another with --worker-user")]
    User {
        /// The user.
        user: u32,
        /// What the kernel said.
        source: rustix::io::Errno,
    },
    /// A step of it was refused.
    #[error("the sandbox: {step}: {source}")]
    Step {
        /// Which.
        step: &'static str,
        /// What the kernel said.
        source: rustix::io::Errno,
    },
    /// The filter of system calls.
    #[error("the sandbox: system-call filter: {0}; is seccomp in this kernel?")]
    Filter(String),
}

/// The first layer, around a program of whose making nothing is believed: an allow-list that has
/// what a dynamic loader and a worker's beginning need. Whoever applies it gives it the process's
/// number first ([`name_process`]).
///
/// # Errors
/// When this processor has no filter.
pub fn starting() -> Result<BpfProgram, SandboxError> {
    filter::starting()
}

/// Where a filter made before the process is born has the process's number. Larger than any process
/// number of Linux (`PID_MAX_LIMIT` is 2^22).
pub(crate) const OWN_PID: u32 = 0x7f57_4549;

/// Writes the process's number into a filter. Allocates nothing.
pub fn name_process(program: &mut BpfProgram, pid: u32) {
    for instruction in program.iter_mut().filter(|i| i.k == OWN_PID) {
        instruction.k = pid;
    }
}

/// The system-call filters of a profile, ready to be put on.
pub struct Filters {
    profile: Profile,
    programs: Vec<BpfProgram>,
}

/// Makes the filters of the second layer, which takes longer than to put them on.
///
/// # Errors
/// When this processor has none.
pub fn filters(profile: Profile) -> Result<Filters, SandboxError> {
    Ok(Filters { profile, programs: filter::running(profile)?.into() })
}

/// Puts on the second layer, with `made` filters if there are any of its profile. What the worker cannot do afterwards it cannot regain.
///
/// # Errors
/// When a step is refused: the worker must not go on.
pub fn enter(spec: &SandboxSpec, made: Option<Filters>) -> Result<(), SandboxError> {
    let step = |step| move |source| SandboxError::Step { step, source };
    // A service, whose program began with what the agent has. Of the others nothing is left, and their first layer
    // does not let them ask.
    let has_capabilities = spec.profile != Profile::Nf;
    if has_capabilities {
        // Where it is not permitted the agent has said so.
        let _ = bound_capabilities();
    }
    if let Some(user) = spec.user {
        become_user(user).map_err(|source| SandboxError::User { user, source })?;
        // A change of user forgets it.
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
            .map_err(step("parent-death signal"))?;
    }
    if has_capabilities {
        drop_capabilities().map_err(step("capabilities"))?;
    }
    // Once more: a change of user forgets it.
    hide().map_err(step("not dumpable"))?;
    let made = made.filter(|made| made.profile == spec.profile);
    let Filters { mut programs, .. } = made.map_or_else(|| filters(spec.profile), Ok)?;
    let pid = rustix::process::getpid().as_raw_nonzero().get().unsigned_abs();
    for program in &mut programs {
        name_process(program, pid);
        // It sets no_new_privs first.
        seccompiler::apply_filter(program).map_err(|e| SandboxError::Filter(e.to_string()))?;
    }
    Ok(())
}

/// Nobody of the same user reads this process's memory, takes its descriptors, or traces it.
pub(crate) fn hide() -> rustix::io::Result<()> {
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)
}

/// Undoes [`hide`], for a worker without a sandbox: whoever debugs it has to see it.
pub(crate) fn show() -> rustix::io::Result<()> {
    rustix::process::set_dumpable_behavior(DumpableBehavior::Dumpable)
}

/// Gives up all groups and becomes `user`, for good. Allocates nothing.
///
/// # Errors
/// As the kernel says.
pub fn become_user(user: u32) -> rustix::io::Result<()> {
    let (gid, uid) = (Gid::from_raw(user), Uid::from_raw(user));
    rustix::thread::set_thread_groups(&[])?;
    rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    rustix::thread::set_thread_res_uid(uid, uid, uid)
}

/// Capabilities that a kernel may have: their numbers have 64 bits.
const CAPABILITIES: u32 = 64;

/// From now on no program gives this thread capabilities, its user's number being 0 or not. Before a change of user,
/// which takes the right to do so. Allocates nothing.
///
/// # Errors
/// When that is not permitted (CAP_SETPCAP). What [`drop_capabilities`] takes is then kept away by "no new privileges"
/// alone.
pub fn bound_capabilities() -> rustix::io::Result<()> {
    for number in 0..CAPABILITIES {
        let one = CapabilitySet::from_bits_retain(1 << number);
        match rustix::thread::remove_capability_from_bounding_set(one) {
            Ok(()) => {}
            // This kernel has no more.
            Err(Errno::INVAL) if number > 0 => break,
            Err(e) => return Err(e),
        }
    }
    use CapabilitiesSecureBits as Bits;
    let bits = Bits::NO_ROOT
        | Bits::NO_ROOT_LOCKED
        | Bits::NO_CAP_AMBIENT_RAISE
        | Bits::NO_CAP_AMBIENT_RAISE_LOCKED;
    rustix::thread::set_capabilities_secure_bits(bits)
}

/// Gives up all capabilities. Everybody may. Allocates nothing.
///
/// # Errors
/// As the kernel says.
pub fn drop_capabilities() -> rustix::io::Result<()> {
    rustix::thread::clear_ambient_capability_set()?;
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    rustix::thread::set_capabilities(None, sets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_filter_is_short_enough_for_the_kernel() {
        // BPF_MAXINSNS.
        assert!((1..4096).contains(&starting().unwrap().len()));
        for profile in [Profile::Nf, Profile::Capture, Profile::Live] {
            for program in filter::running(profile).unwrap() {
                assert!((1..4096).contains(&program.len()), "{profile:?}");
            }
        }
    }

    #[test]
    fn a_filter_gets_the_number_of_its_process() {
        let mut program = starting().unwrap();
        // Two calls that signal, five that schedule, one that asks for limits.
        assert_eq!(program.iter().filter(|i| i.k == OWN_PID).count(), 8);
        name_process(&mut program, 4711);
        assert_eq!(program.iter().filter(|i| i.k == OWN_PID).count(), 0);
        assert_eq!(program.iter().filter(|i| i.k == 4711).count(), 8);
    }
}
