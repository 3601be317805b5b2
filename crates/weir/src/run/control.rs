//! The control socket of a run: others ask, the run's loop answers.

use super::reload::Setting;
use crate::control::{self, Answer, Ask, Flow, Flows};
use crate::planning::PlanArgs;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::Mode;
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use weir_control::{Agent, Event, Listed, MoveFlows, Renewing};
use weir_filter::Expr;
use weir_packet::flow::PortKind;
use weir_packet::{Direction, FlowKey};
use weir_port::Doorbell;
use weir_runtime::moves::What;

/// Who may ask at the same time, at most.
const MOST: usize = 16;
/// How long to wait when nobody could be taken in.
const AGAIN: std::time::Duration = std::time::Duration::from_millis(50);

/// A question, and where its answer goes.
type Asked = (Ask, Sender<Answer>);

/// The socket, while the run runs.
pub(super) struct Control {
    path: PathBuf,
    asked: Receiver<Asked>,
    /// By number of the agent's: who waits.
    waiting: BTreeMap<u64, Sender<Answer>>,
    /// Workers that are to come back, and who waits for it.
    renewing: Vec<(Renewing, Sender<Answer>)>,
    settings: VecDeque<Setting>,
}

/// Why there is no socket.
#[derive(Debug, thiserror::Error)]
pub(super) enum SocketError {
    #[error("cannot make the control socket {}: {source}; name another place with --control", path.display())]
    Bind { path: PathBuf, source: io::Error },
    #[error("cannot listen at the control socket: {0}")]
    Wake(#[from] weir_port::DoorbellError),
}

impl Control {
    /// Makes the socket, for this user only. `named`: where; else in the directory of all runs.
    pub(super) fn open(named: Option<&Path>, agent: &mut Agent) -> Result<Self, SocketError> {
        let path = match named {
            Some(path) => path.to_owned(),
            None => control::directory().join(format!("{}.sock", std::process::id())),
        };
        let failed = |source| SocketError::Bind { path: path.clone(), source };
        if named.is_none() {
            use std::os::unix::fs::DirBuilderExt;
            let mut builder = std::fs::DirBuilder::new();
            builder.recursive(true).mode(0o700).create(control::directory()).map_err(failed)?;
        }
        let lock = if named.is_none() { Some(sweep().map_err(failed)?) } else { None };
        // What is left over of a run that was killed answers nobody.
        if is_stale(&path) {
            std::fs::remove_file(&path).map_err(failed)?;
        }
        let listener = bind(&path).map_err(failed)?;
        drop(lock);
        let bell = Doorbell::new()?;
        let own = bell.fd().try_clone_to_owned().map_err(failed)?;
        agent.wake_by(own);
        let (ask, asked) = channel();
        let ring = bell.fd().try_clone_to_owned().map_err(failed)?;
        let listens = move || listen(&listener, &ask, &ring);
        let thread = std::thread::Builder::new().name("weir-control".into());
        thread.spawn(listens).map_err(failed)?;
        let (waiting, renewing, settings) = Default::default();
        Ok(Control { path, asked, waiting, renewing, settings })
    }

    /// Does what was asked for.
    pub(super) fn serve(&mut self, agent: &mut Agent) {
        while let Ok((ask, answer)) = self.asked.try_recv() {
            match begin(agent, &ask) {
                Ok(Begun::Ordered(ticket)) => drop(self.waiting.insert(ticket, answer)),
                Ok(Begun::Answered(known)) => drop(answer.send(known)),
                Ok(Begun::Renews(renewing)) => self.renewing.push((renewing, answer)),
                Ok(Begun::Sets { reset, options }) => {
                    self.settings.push_back(Setting { reset, options: *options, answer });
                }
                Err(why) => drop(answer.send(Answer::Error(why))),
            }
        }
        self.renewing.retain_mut(|(renewing, answer)| {
            let Some(renewed) = agent.renewed(renewing) else { return true };
            let renewed = renewed.map_or_else(|e| Answer::Error(e.to_string()), Answer::Renewed);
            let _ = answer.send(renewed);
            false
        });
    }

    /// The graph has new workers: of those that were to come back nobody will hear.
    pub(super) fn forget_renewing(&mut self) {
        for (_, answer) in self.renewing.drain(..) {
            let why = "the graph was changed meanwhile, and has new workers".to_owned();
            let _ = answer.send(Answer::Error(why));
        }
    }

    /// What is to be set since that was asked last.
    pub(super) fn settings(&mut self) -> impl Iterator<Item = Setting> {
        self.settings.drain(..)
    }

    /// The same while the agent is at a change and tells of nothing else.
    pub(super) fn serve_meanwhile(&mut self, agent: &mut Agent) {
        self.serve(agent);
        agent.listed().iter().for_each(|event| self.hear(event));
    }

    /// Passes on what the agent answers.
    pub(super) fn hear(&mut self, event: &Event) {
        let (ticket, answer) = match event {
            Event::FlowsMoved { ticket, moved } => {
                let (flows, failures) = (moved.flows, moved.failures.clone());
                (ticket, Answer::Moved { flows, ms: moved.took.as_secs_f64() * 1e3, failures })
            }
            Event::FlowsListed { ticket, listed } => (ticket, Answer::Flows(told(listed))),
            _ => return,
        };
        if let Some(waiting) = self.waiting.remove(ticket) {
            let _ = waiting.send(answer);
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Takes sockets of runs that were killed out of the directory of all runs. Locks it until what is given back is dropped:
/// numbers of processes come again, and a name that was stale a moment ago may be another run's by now.
fn sweep() -> io::Result<OwnedFd> {
    use rustix::fs::{FlockOperation, OFlags, flock, open};
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = open(control::directory(), flags, Mode::empty())?;
    // Another run is at it, or was stopped there: nobody waits for that. What is stale is the next one's to take out.
    if flock(&directory, FlockOperation::NonBlockingLockExclusive).is_err() {
        return Ok(directory);
    }
    for entry in std::fs::read_dir(control::directory())?.flatten() {
        let path = entry.path();
        let number = path.file_stem().and_then(|n| n.to_str()).and_then(|n| n.parse::<u32>().ok());
        let is_socket = path.extension().is_some_and(|e| e == "sock");
        // Whose process lives is not asked: its socket might be too busy to take a question, and is its own affair.
        let is_over = |n: u32| !Path::new("/proc").join(n.to_string()).exists();
        if is_socket && number.is_some_and(is_over) && is_stale(&path) {
            let _ = std::fs::remove_file(&path);
        }
    }
    Ok(directory)
}

/// A socket for this user alone, which has its name when it listens: who finds it is answered.
fn bind(path: &Path) -> io::Result<UnixListener> {
    // Beside it, as a name goes from one to the other; and not much longer, as names of sockets have bounds.
    let beside = path.with_file_name(format!(".{}", std::process::id()));
    // Numbers of processes come again: whoever had this one may have been killed just here.
    if is_stale(&beside) {
        std::fs::remove_file(&beside)?;
    }
    // Made for this user alone: later would be too late.
    let before = rustix::process::umask(Mode::from_raw_mode(0o177));
    let listener = UnixListener::bind(&beside);
    rustix::process::umask(before);
    let listener = listener?;
    // A link is not made where something else has the name.
    let named = std::fs::hard_link(&beside, path);
    let gone = std::fs::remove_file(&beside);
    named.and(gone).map(|()| listener)
}

/// True for a socket that nobody listens at.
fn is_stale(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    let is_socket = path.symlink_metadata().is_ok_and(|found| found.file_type().is_socket());
    let refused = |e: io::Error| e.kind() == io::ErrorKind::ConnectionRefused;
    is_socket && UnixStream::connect(path).is_err_and(refused)
}

/// What became of a question.
enum Begun {
    /// The agent answers it later, by this number.
    Ordered(u64),
    Answered(Answer),
    /// A worker is to come back.
    Renews(Renewing),
    /// The graph is to be changed.
    Sets {
        reset: bool,
        options: Box<PlanArgs>,
    },
}

fn begin(agent: &mut Agent, ask: &Ask) -> Result<Begun, String> {
    match ask {
        Ask::Flows { nf, filter, most } => {
            let filter = filter.as_deref().map(parse).transpose()?;
            let listed = agent.list_flows(nf.as_deref(), filter.as_ref(), *most);
            listed.map(Begun::Ordered).map_err(|e| e.to_string())
        }
        Ask::Move { nf, filter, share, count, from, to } => {
            let what = match (filter, share, count) {
                (Some(filter), None, None) => What::Flows(Some(parse(filter)?)),
                (None, Some(share @ 1..=100), None) => What::Share(*share),
                (None, Some(share), None) => {
                    return Err(format!("a share of {share} hundredths is none; from 1 to 100"));
                }
                (None, None, Some(count)) => What::Count(*count),
                _ => return Err("say which flows: a filter, a share, or how many".to_owned()),
            };
            let order = MoveFlows { nf: nf.clone(), what, from: *from, to: *to };
            agent.move_flows(&order).map(Begun::Ordered).map_err(|e| e.to_string())
        }
        Ask::Renew { nf, instance } => {
            let renewing = agent.renew(nf, *instance);
            renewing.map(Begun::Renews).map_err(|e| e.to_string())
        }
        Ask::Set { options, reset } => {
            if options.is_empty() && !reset {
                return Err("say what is to be set, or reset".to_owned());
            }
            let options = Box::new(PlanArgs::of_words(options)?);
            Ok(Begun::Sets { reset: *reset, options })
        }
        Ask::Load { nf } => {
            let rows = agent.load_of(nf.as_deref());
            match (nf, rows.is_empty()) {
                (Some(nf), true) => Err(format!("there is no NF `{nf}`")),
                _ => Ok(Begun::Answered(Answer::Load(rows))),
            }
        }
    }
}

/// A filter over flows: what it asks for has to be in a flow's key.
fn parse(text: &str) -> Result<Expr, String> {
    let expr = weir_filter::parse(text).map_err(|errors| {
        let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
        format!("filter `{text}`: {}", errors.join("; "))
    })?;
    if expr.asks_slots() || expr.asks_ingress() {
        return Err(format!(
            "filter `{text}`: flows have no tags and no port that they came in by"
        ));
    }
    weir_filter::Filter::compile(&expr).map_err(|e| format!("filter `{text}`: {e}"))?;
    Ok(expr)
}

fn told(listed: &Listed) -> Flows {
    let end = |(address, port): (std::net::IpAddr, u16)| {
        if address.is_ipv6() { format!("[{address}]:{port}") } else { format!("{address}:{port}") }
    };
    // Of an end by itself there is no other.
    let ends = |key: &FlowKey| match key.port_kind() {
        PortKind::Inner => [end(key.upper()), "inside".to_owned()],
        PortKind::Outer => [end(key.upper()), "outside".to_owned()],
        _ => key.ends(Direction::Up).map(end),
    };
    let flows = listed.rows.iter().map(|row| Flow {
        nf: row.nf.clone(),
        kind: row.kind.clone(),
        instance: row.instance,
        proto: row.keys.first().map_or(0, FlowKey::proto),
        keys: row.keys.iter().map(ends).collect(),
        age: row.age.as_secs_f64(),
        idle: row.idle.as_secs_f64(),
    });
    Flows {
        counts: listed.counts.clone(),
        flows: flows.collect(),
        failures: listed.failures.clone(),
    }
}

/// Takes in whoever comes, until the run ends.
fn listen(listener: &UnixListener, ask: &Sender<Asked>, ring: &OwnedFd) {
    let there = Arc::new(AtomicUsize::new(0));
    for stream in listener.incoming() {
        let Ok(stream) = stream else {
            // Too many open files, say, or who asked has left already: not the end of all asking.
            std::thread::sleep(AGAIN);
            continue;
        };
        let (ask, there) = (ask.clone(), there.clone());
        let Ok(ring) = ring.as_fd().try_clone_to_owned() else { continue };
        // Relaxed: a counter, no data behind it.
        if there.fetch_add(1, Ordering::Relaxed) >= MOST {
            let _ = reply(&stream, &Answer::Error(format!("{MOST} others are asking already")));
            there.fetch_sub(1, Ordering::Relaxed);
            continue;
        }
        let left = there.clone();
        let talks = move || {
            let _ = talk(&stream, &ask, &ring);
            there.fetch_sub(1, Ordering::Relaxed);
        };
        let thread = std::thread::Builder::new().name("weir-control".into());
        if thread.spawn(talks).is_err() {
            left.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// One line asks, one answers, until the other has no more.
fn talk(stream: &UnixStream, ask: &Sender<Asked>, ring: &OwnedFd) -> io::Result<()> {
    stream.set_read_timeout(Some(control::PATIENCE))?;
    stream.set_write_timeout(Some(control::PATIENCE))?;
    let mut lines = BufReader::new(stream);
    loop {
        let mut line = String::new();
        let len = (&mut lines).take(control::LONGEST).read_line(&mut line)?;
        if len == 0 {
            return Ok(());
        }
        if len as u64 >= control::LONGEST {
            let why = format!("a question of more than {} bytes", control::LONGEST);
            return reply(stream, &Answer::Error(why));
        }
        let answer = match serde_json::from_str(&line) {
            Ok(question) => {
                let (send, answer) = channel();
                if ask.send((question, send)).is_err() {
                    return Ok(());
                }
                let _ = rustix::io::write(ring, &1u64.to_ne_bytes());
                answer.recv_timeout(control::PATIENCE).unwrap_or_else(|_| {
                    Answer::Error("the graph has not answered in time, or has ended".to_owned())
                })
            }
            Err(e) => Answer::Error(format!("not a question: {e}")),
        };
        reply(stream, &answer)?;
    }
}

fn reply(mut stream: &UnixStream, answer: &Answer) -> io::Result<()> {
    let mut line = serde_json::to_string(answer)?;
    line.push('\n');
    stream.write_all(line.as_bytes())
}
