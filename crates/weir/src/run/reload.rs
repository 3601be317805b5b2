//! Reading the policy again while its graph runs, and relinking it.

use super::RunError;
use super::live::Live;
use super::planner::{Planned, Planner};
use crate::control::Answer;
use crate::planning::PlanArgs;
use std::collections::{BTreeMap, VecDeque};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::Scope;
use std::time::{Duration, Instant};
use weir_control::{Agent, RelinkError, Relinked, Report};
use weir_plan::Plan;

/// How often files are looked at. A look asks the file system for each file's times, which costs the agent's loop
/// nothing to speak of, and works for files that are replaced, on any file system.
const LOOK: Duration = Duration::from_millis(500);

/// Options that were given at the control socket: in place of those that stand elsewhere.
pub(super) struct Setting {
    /// Forget those that were given before.
    pub(super) reset: bool,
    pub(super) options: PlanArgs,
    /// Who waits for what becomes of it.
    pub(super) answer: Sender<Answer>,
}

/// What of the graph is read, planned and running.
pub(super) struct Reload<'s, 'e, 'a> {
    scope: &'s Scope<'s, 'e>,
    planner: &'e Planner<'a>,
    /// The plan that runs.
    plan: Plan,
    /// That of the generation that is being prepared.
    next: Option<Plan>,
    /// A policy that is being read.
    reading: Option<Receiver<Result<Planned, RunError>>>,
    /// It was asked for again meanwhile.
    again: bool,
    /// What is set, as the graph runs by it.
    set: PlanArgs,
    /// The same for what is being read or prepared; and who waits for it.
    trying: Option<(PlanArgs, Option<Sender<Answer>>)>,
    /// What is to be set.
    settings: VecDeque<Setting>,
    generation: u32,
    watch: Option<Watch>,
    start: Instant,
    /// What all generations that have ended counted together.
    earlier: Option<Report>,
    relinks: Vec<Relinked>,
}

impl<'s, 'e, 'a> Reload<'s, 'e, 'a> {
    pub(super) fn new(
        scope: &'s Scope<'s, 'e>,
        planner: &'e Planner<'a>,
        plan: Plan,
        watch: Option<Watch>,
    ) -> Self {
        Reload {
            scope,
            planner,
            plan,
            next: None,
            reading: None,
            again: false,
            set: PlanArgs::default(),
            trying: None,
            settings: VecDeque::new(),
            generation: 1,
            watch,
            start: Instant::now(),
            earlier: None,
            relinks: Vec::new(),
        }
    }

    /// Reads the policy when it is `asked` for or has changed, and goes on with what was read.
    pub(super) fn look(&mut self, agent: &mut Agent, live: &mut Live, asked: bool) {
        let changed = self.watch.as_mut().is_some_and(Watch::has_changed);
        self.again |= asked || changed;
        match self.reading.as_ref().map(Receiver::try_recv) {
            Some(Err(TryRecvError::Empty)) => return,
            Some(read) => {
                self.reading = None;
                match read {
                    Ok(read) => self.relink(agent, live, read),
                    // Its thread has ended without a word only if it panicked, which was said then.
                    Err(_) => self.failed("it could not be planned"),
                }
            }
            None => {}
        }
        // Whatever was asked for while another was under way is done now, once; what is to be set, one after the other.
        let is_asked = self.again || !self.settings.is_empty();
        // What was tried last has come about only when that was told, which is later than the switch.
        let is_idle = self.reading.is_none() && self.trying.is_none() && !agent.is_relinking();
        if is_asked && is_idle {
            // What the files say by itself: a setting that is refused takes nothing else along.
            let from_files = std::mem::take(&mut self.again);
            let mut set = self.set.clone();
            let setting = if from_files { None } else { self.settings.pop_front() };
            let answer = setting.map(|Setting { reset, options, answer }| {
                let before = if reset { PlanArgs::default() } else { std::mem::take(&mut set) };
                set = before.with(options);
                answer
            });
            self.trying = Some((set.clone(), answer));
            let (say, read) = channel();
            let (planner, generation) = (self.planner, self.generation + 1);
            self.scope.spawn(move || {
                let _ = say.send(crate::known::again(|| planner.plan(generation, set)));
            });
            self.reading = Some(read);
        }
    }

    /// Something is to be set, as soon as nothing else is under way.
    pub(super) fn set(&mut self, settings: impl Iterator<Item = Setting>) {
        self.settings.extend(settings);
    }

    /// What was tried did not come about: what was set before stays.
    fn failed(&mut self, why: &str) {
        if let Some((_, Some(answer))) = self.trying.take() {
            let _ = answer.send(Answer::Error(format!("{why}; the graph goes on as it was")));
        }
    }

    fn relink(&mut self, agent: &mut Agent, live: &mut Live, read: Result<Planned, RunError>) {
        let planned = match read {
            Ok(planned) => planned,
            Err(e) => {
                live.clear();
                let why = e.to_string();
                crate::complain!("{}", why.trim_end());
                live.say("not relinked: the graph goes on as it was");
                self.failed(why.trim_end());
                return;
            }
        };
        if let Some(watch) = &mut self.watch {
            watch.set(self.planner.own_files().chain(planned.files));
        }
        match agent.relink(planned.setup) {
            Ok(()) => self.next = Some(planned.plan),
            Err(e) => {
                live.say(&format!("not relinked: {e}; the graph goes on as it was"));
                self.failed(&e.to_string());
            }
        }
    }

    /// Takes in what generations that have ended counted; true when any has. To be called after each turn, before its events are
    /// looked at.
    pub(super) fn count_retired(&mut self, agent: &mut Agent, live: &mut Live) -> bool {
        let all = agent.retired();
        let any = !all.is_empty();
        for mut retired in all {
            // What was heard during the switch.
            live.tell_rest(&mut retired.agent);
            live.retire(&retired.agent);
            let seconds = self.start.elapsed().as_secs_f64();
            let mut report = Report::of(&self.plan, &retired.agent, retired.census, seconds);
            self.earlier.take().into_iter().for_each(|earlier| report.add_earlier(earlier));
            self.earlier = Some(report);
            self.generation += 1;
            if let Some(next) = self.next.take() {
                self.plan = next;
            }
        }
        any
    }

    pub(super) fn relinked(&mut self, relinked: Relinked) {
        if let Some((set, answer)) = self.trying.take() {
            self.set = set;
            answer.map(|answer| answer.send(Answer::Relinked(relinked)));
        }
        self.relinks.push(relinked);
    }

    pub(super) fn not_relinked(&mut self, why: &RelinkError) {
        self.next = None;
        self.failed(&why.to_string());
    }

    /// The plan that ran last, and the report of the generations before.
    pub(super) fn end(self) -> (Plan, Option<Report>, Vec<Relinked>) {
        (self.plan, self.earlier, self.relinks)
    }
}

/// What tells that a file is another than before: when it was changed, its length, its number.
type Stamp = Option<(i64, i64, u64, u64)>;

/// Files that are looked at now and then.
pub(super) struct Watch {
    files: BTreeMap<PathBuf, Stamp>,
    looked: Instant,
    /// Something has changed and was not quiet since: an editor may not be through.
    restless: bool,
}

impl Watch {
    pub(super) fn new(files: impl Iterator<Item = PathBuf>) -> Self {
        let mut watch = Watch { files: BTreeMap::new(), looked: Instant::now(), restless: false };
        watch.set(files);
        watch
    }

    pub(super) fn set(&mut self, files: impl Iterator<Item = PathBuf>) {
        let mut old = std::mem::take(&mut self.files);
        let stamped = files.map(|file| {
            // What has changed since it was looked at last is still to be noticed.
            let stamp = old.remove(&file).unwrap_or_else(|| stamp(&file));
            (file, stamp)
        });
        self.files = stamped.collect();
    }

    /// True when something has changed and everything is quiet again.
    fn has_changed(&mut self) -> bool {
        if self.looked.elapsed() < LOOK {
            return false;
        }
        self.looked = Instant::now();
        let mut moved = false;
        for (file, before) in &mut self.files {
            let now = stamp(file);
            moved |= std::mem::replace(before, now) != now;
        }
        let quiet = std::mem::replace(&mut self.restless, moved) && !moved;
        if moved {
            self.restless = true;
        }
        quiet
    }
}

fn stamp(file: &std::path::Path) -> Stamp {
    let found = std::fs::metadata(file).ok()?;
    Some((found.mtime(), found.mtime_nsec(), found.len(), found.ino()))
}
