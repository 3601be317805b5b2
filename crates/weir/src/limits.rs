//! Limits of the process, or of its user, that a run may meet: which one it was, and what to do.

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use std::error::Error;
use weir_control::AgentError;

/// An error and what brought it about.
fn chain<'e>(error: &'e (dyn Error + 'static)) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    std::iter::successors(Some(error), |e: &&'e (dyn Error + 'static)| {
        let error: &'e (dyn Error + 'static) = *e;
        error.source()
    })
}

/// What the kernel said in the end, if it was the kernel that refused.
fn refusal(error: &(dyn Error + 'static)) -> Option<Errno> {
    let errno = |e: &(dyn Error + 'static)| {
        let io = || Errno::from_io_error(e.downcast_ref::<std::io::Error>()?);
        e.downcast_ref::<Errno>().copied().or_else(io)
    };
    chain(error).filter_map(errno).last()
}

/// What to do when a limit is why `error` came about. `workers`: how many are to run, as far as that is
/// known; they decide how many files are enough.
pub fn cure(error: &(dyn Error + 'static), workers: usize) -> Option<String> {
    let errno = refusal(error)?;
    // More than workers of usual chains have; it decides only what is said.
    let enough = 256 + 64 * workers as u64;
    let files = getrlimit(Resource::Nofile).current;
    let few = files.is_some_and(|most| most < enough);
    // A worker's own limit is part of ours: with too few files it may not even be set.
    let spawns = chain(error).any(|e| matches!(e.downcast_ref(), Some(AgentError::Spawn(_))));
    match errno {
        Errno::MFILE => Some(few_files(files, workers, enough)),
        Errno::PERM if spawns && few => Some(few_files(files, workers, enough)),
        Errno::NFILE => Some("the machine has too many files open: sysctl fs.file-max".to_owned()),
        Errno::AGAIN => {
            let most = getrlimit(Resource::Nproc).current;
            let most = most.map_or_else(String::new, |most| format!("; this user may have {most}"));
            Some(format!(
                "no more processes are allowed{most}: raise the limit (ulimit -u; as root, TasksMax= and \
                 LimitNPROC= of the service; in a container, its pids limit)"
            ))
        }
        _ => None,
    }
}

fn few_files(most: Option<u64>, workers: usize, enough: u64) -> String {
    let most = most.unwrap_or(u64::MAX);
    let who = match workers {
        0 => "weir".to_owned(),
        _ => format!("{workers} workers"),
    };
    format!(
        "only {most} files may be open at a time, and {who} may need {enough}: raise the limit (ulimit -n \
         {enough}; as root, LimitNOFILE= of the service)"
    )
}
