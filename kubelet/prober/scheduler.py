"""Runs the probe workers of all pods on a bounded number of threads.

This file has no Go counterpart. In Go each worker has a goroutine; here workers share threads. A worker runs when its
time has come, or when somebody triggers it, and never twice at the same time.

DIVERGES (platform): probes beyond MAX_PROBES_PER_POD of a pod, or MAX_THREADS of a node, wait for others to end.
Go: pkg/kubelet/prober/worker.go, (*worker).run: has no bound.
Why: each probe that runs needs a thread, and a manifest with thousands of probes would take all that there may be.
Test: scheduler_test.py:test_pod_whose_probes_hang_holds_up_no_other,
scheduler_test.py:test_pods_whose_probes_hang_take_no_more_threads_than_there_are
"""

from __future__ import annotations

import enum
import heapq
import itertools
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from pkg import golang, klog
from pkg.apimachinery import clock as clocklib
from pkg.apimachinery import types
from pkg.apimachinery.util import runtime

# Probes of one pod that run at the same time: the others wait for one to end, and for the pod's sake alone.
MAX_PROBES_PER_POD = 8
# Threads that run probes. A pod of which no probe runs gets a thread even beyond this, so that pods whose probes hang
# hold up no other pod.
MAX_THREADS = 256
# Seconds after which a thread without work ends.
_IDLE_TIMEOUT = 10.0
# Seconds between two new threads. Probes that are due at once are mostly done sooner by the threads that there are.
_GROWTH_PERIOD = 0.005
# Seconds after which it is tried again to start a thread, and at most how often it is told that probes wait.
_RETRY_PERIOD = 1.0
_TELL_PERIOD = 60.0
# Seconds that a probe may wait for a thread before it is told.
_TELL_DELAY = 1.0
# Entries of the heap that do not count any more, beside as many as there are tasks, before they are removed.
_STALE_ENTRIES = 100


class Worker(Protocol):
    """What is run. Its methods are called by one thread at a time."""

    @property
    def pod_uid(self) -> types.UID: ...

    @property
    def due(self) -> float:
        """When the worker is to run next, on the clock's monotonic time."""
        ...

    def run_once(self, ctx: golang.Context, triggered: bool) -> bool:
        """Run, as it is due or as somebody has triggered it. Returns whether it is to run again."""
        ...

    def end(self) -> None:
        """The worker will not run any more."""
        ...


class _State(enum.Enum):
    """What a worker waits for."""

    # Its time.
    WAITING = enum.auto()
    # A thread.
    QUEUED = enum.auto()
    # Its own end.
    RUNNING = enum.auto()
    ENDED = enum.auto()


@dataclass(slots=True, eq=False)
class _Task:
    """A worker, and where it stands."""

    worker: Worker
    state: _State = _State.WAITING
    # Of the entry of the heap that counts, while the task waits for its time.
    ticket: int = 0
    triggered: bool = False
    # Whether the run that is under way was triggered.
    runs_triggered: bool = False
    # Somebody has stopped the worker while it runs.
    stopped: bool = False
    # Cancels the run; None between two runs.
    cancel: Callable[[], None] | None = None


@dataclass(slots=True, eq=False)
class _Pod:
    """The tasks of one pod that wait for a thread, in their order, and the number of those that run."""

    uid: types.UID
    queue: deque[_Task] = field(default_factory=deque)
    running: int = 0


class Scheduler:
    """Every method is safe from any thread, and none waits for a worker."""

    def __init__(self, ctx: golang.Context, clock: clocklib.Clock) -> None:
        """Workers run until ctx is cancelled; whoever cancels it calls end_all then."""
        self._ctx = ctx
        self._clock = clock
        self._changed: golang.Channel[None] = golang.Channel(1)  # The first of _waiting is another one.
        self._lock = golang.Mutex()  # guards the fields below
        self._tasks: dict[Worker, _Task] = {}
        # A heap of the tasks that wait for their time: when, and a ticket. Tasks that wait no more are left in it.
        self._waiting: list[tuple[float, int, _Task]] = []
        self._tickets = itertools.count()
        # By uid: the pods of which a task waits for a thread, or runs.
        self._pods: dict[types.UID, _Pod] = {}
        # The pods of which a task may run now, in the order of their turns.
        self._turns: dict[_Pod, None] = {}
        # Where threads without work wait for it; who came last is first.
        self._idle: list[golang.Channel[_Task]] = []
        self._threads = 0
        self._timekeeper_runs = False
        # For the timekeeper: when it last told that probes wait, and when it last looked.
        self._told = self._looked = float("-inf")

    def add(self, worker: Worker) -> None:
        """Run the worker from its due time on, until it ends or is stopped. The caller calls `tend` after it."""
        with self._lock:
            task = self._tasks[worker] = _Task(worker)
            try:
                self._wait_locked(task)
            except BaseException:
                task.state = _State.ENDED
                del self._tasks[worker]
                raise

    def tend(self) -> None:
        """Start the first thread. To be called now and again: there may have been none for this process before."""
        with self._lock:
            if self._timekeeper_runs or not self._tasks:
                return
            self._timekeeper_runs = True
        try:
            golang.go(self._keep_time, name="prober-clock")
        except golang.ThreadError as err:
            with self._lock:
                self._timekeeper_runs = False
                waiting = len(self._tasks)
            klog.error_s(err, "Cannot begin to probe; it is tried again with the next housekeeping", probes=waiting)

    def trigger(self, worker: Worker) -> None:
        """Run the worker now, or again when it runs, and not only when it is due."""
        with self._lock:
            task = self._tasks.get(worker)
            if task is None:
                return
            task.triggered = True
            if task.state is _State.WAITING:
                self._queue_locked(task)
                self._changed.try_send(None)

    def stop(self, worker: Worker) -> None:
        """Do not run the worker any more; one that runs is cancelled.

        DIVERGES (safer): a probe that runs ends with its pod.
        Go: pkg/kubelet/prober/worker.go, (*worker).stop: it goes on until its timeout, which a pod may set to years.
        Why: until then no new pod with the same uid would be probed, and a thread would be lost to other probes.
        Test: prober_manager_test.py:test_probe_that_hangs_ends_with_its_pod_and_the_next_of_that_uid_is_probed
        """
        with self._lock:
            task = self._tasks.get(worker)
            if task is None:
                return
            task.stopped = True
            runs, cancel = task.state is _State.RUNNING, task.cancel
            idle = [] if runs else self._end_locked(task)
        if not runs:
            self._tell_ended(task, idle)
        elif cancel is not None:
            cancel()

    def end_all(self) -> None:
        """Stop all workers; ctx is cancelled."""
        with self._lock:
            workers = list(self._tasks)
        for worker in workers:
            self.stop(worker)

    # The timekeeper.

    def _keep_time(self) -> None:
        """Queue tasks when they are due, as long as there are any."""
        timer = self._clock.new_timer_channel(0, None)
        try:
            while True:
                pause: float | None = _RETRY_PERIOD
                with runtime.contain("Failed to schedule probes"):
                    if not self._set_timer(timer):
                        return
                    pause = self._dispatch()
                golang.select(self._ctx.done(), self._changed, timer, timeout=pause)
        finally:
            timer.stop()

    def _set_timer(self, timer: golang.TimerChannel) -> bool:
        """Queue what is due, and set the timer for what comes next. False when there is nothing left to do."""
        with self._lock:
            if not self._tasks or self._ctx.err() is not None:
                self._timekeeper_runs = False
                return False
            self._queue_due_locked()
            if self._waiting:
                timer.start_at(self._waiting[0][0])
            else:
                timer.stop()
        return True

    # Where tasks stand.

    def _queue_due_locked(self) -> None:
        now = self._clock.monotonic()
        while self._waiting and self._waiting[0][0] <= now:
            _, ticket, task = heapq.heappop(self._waiting)
            if _counts(ticket, task):
                self._queue_locked(task)

    def _wait_locked(self, task: _Task) -> None:
        """Have the task wait for its time."""
        task.state, task.ticket = _State.WAITING, next(self._tickets)
        heapq.heappush(self._waiting, (task.worker.due, task.ticket, task))
        if len(self._waiting) > 2 * len(self._tasks) + _STALE_ENTRIES:
            self._waiting = [entry for entry in self._waiting if _counts(*entry[1:])]
            heapq.heapify(self._waiting)
        if self._waiting[0][2] is task:
            self._changed.try_send(None)

    def _queue_locked(self, task: _Task) -> None:
        """Have the task wait for a thread."""
        task.state = _State.QUEUED
        uid = task.worker.pod_uid
        pod = self._pods.get(uid)
        if pod is None:
            pod = self._pods[uid] = _Pod(uid)
        pod.queue.append(task)
        self._give_turn_locked(pod)

    def _give_turn_locked(self, pod: _Pod) -> None:
        """Let the pod take part in the turns if another of its tasks may run; forget it when it has none."""
        while pod.queue and pod.queue[0].state is _State.ENDED:
            pod.queue.popleft()
        if pod.queue and pod.running < MAX_PROBES_PER_POD:
            self._turns[pod] = None
            return
        self._turns.pop(pod, None)
        if not pod.queue and not pod.running:
            self._pods.pop(pod.uid, None)

    def _take_locked(self, thread_is_free: bool) -> _Task | None:
        """The next task to run; None when there is none, or no thread for it."""
        room = thread_is_free or self._threads < MAX_THREADS
        pod = next((pod for pod in self._turns if room or not pod.running), None)
        if pod is None:
            return None
        task = pod.queue.popleft()
        task.state = _State.RUNNING
        task.runs_triggered, task.triggered = task.triggered, False
        pod.running += 1
        # The next turn is another pod's.
        del self._turns[pod]
        self._give_turn_locked(pod)
        return task

    def _leave_locked(self, task: _Task) -> None:
        """The task does not run any more."""
        pod = self._pods[task.worker.pod_uid]
        pod.running -= 1
        self._give_turn_locked(pod)

    def _end_locked(self, task: _Task) -> list[golang.Channel[_Task]]:
        """The task will not run any more. Returns where those threads wait that are not needed any longer."""
        task.state = _State.ENDED
        del self._tasks[task.worker]
        pod = self._pods.get(task.worker.pod_uid)
        if pod is not None:
            self._give_turn_locked(pod)
        if self._tasks:
            return []
        self._waiting.clear()
        self._changed.try_send(None)
        idle, self._idle = self._idle, []
        self._threads -= len(idle)
        return idle

    def _tell_ended(self, task: _Task, idle: Iterable[golang.Channel[_Task]]) -> None:
        for channel in idle:
            channel.close()
        with runtime.contain("Probe worker failed to end", podUID=task.worker.pod_uid):
            task.worker.end()

    # The threads.

    def _dispatch(self) -> float | None:
        """Give tasks to threads without work, and to a new one.

        Returns after how many seconds to look again, None for not before something happens.
        """
        with self._lock:
            while self._idle and (task := self._take_locked(thread_is_free=True)) is not None:
                self._idle.pop().try_send(task)
            task = self._take_locked(thread_is_free=False)
            if task is not None:
                self._threads += 1
            name, more = f"prober-{self._threads}", bool(self._turns)
        if task is not None:
            try:
                golang.go(self._run, task, name=name)
            except golang.ThreadError as err:
                self._put_back(task)
                self._tell_waiting(err)
                return _RETRY_PERIOD
            return _GROWTH_PERIOD if more else None
        self._tell_waiting(None)
        return _RETRY_PERIOD if more else None

    def _put_back(self, task: _Task) -> None:
        """There is no thread for the task: have it wait for one, before others of its pod."""
        with self._lock:
            self._threads -= 1
            task.state = _State.QUEUED
            task.triggered |= task.runs_triggered
            pod = self._pods[task.worker.pod_uid]
            pod.queue.appendleft(task)
            self._leave_locked(task)
            ended = task.stopped
            idle = self._end_locked(task) if ended else []
        if ended:
            self._tell_ended(task, idle)

    def _tell_waiting(self, err: Exception | None) -> None:
        """Log that probes wait for threads, if they do, now and again; err is why there is no thread."""
        now = self._clock.monotonic()
        if now < self._told + _TELL_PERIOD or (err is None and now < self._looked + _RETRY_PERIOD):
            return
        self._looked = now
        with self._lock:
            pods = [pod for pod in self._pods.values() if pod.queue]
            if not pods:
                return
            longest = min(pods, key=lambda pod: pod.queue[0].worker.due)
            if err is None and now < longest.queue[0].worker.due + _TELL_DELAY:
                return
            self._told = now
            state = {
                "waiting": sum(len(pod.queue) for pod in pods),
                "threads": self._threads,
                "podUID": longest.uid,
                "runningOfPod": longest.running,
            }
        if err is not None:
            klog.error_s(err, "Probes wait for a thread; it is tried again", **state)
        else:
            klog.info_s("Probes wait for others to end", **state, limitOfPod=MAX_PROBES_PER_POD, limit=MAX_THREADS)

    def _run(self, first: _Task) -> None:
        """A thread: run tasks while there are any."""
        task: _Task | None = first
        mine: golang.Channel[_Task] = golang.Channel(1)
        while task is not None:
            task = self._next(task, self._run_task(task), mine)

    def _run_task(self, task: _Task) -> bool:
        """Whether the worker is to run again."""
        cancel = None
        try:
            ctx, cancel = golang.with_cancel(self._ctx)
            # This needs no lock: `stop` sets `stopped` before it reads `cancel`, so one of the two threads always sees
            # what the other one has set.
            task.cancel = cancel
            if task.stopped:
                return False
            return task.worker.run_once(ctx, task.runs_triggered)
        except Exception as err:
            # The thread serves all pods, and the worker may do better the next time.
            klog.error_s(err, "Probe worker failed", podUID=task.worker.pod_uid, stacktrace=klog.stacktrace(err))
            return True
        finally:
            task.cancel = None
            if cancel is not None:
                cancel()

    def _next(self, done: _Task, goes_on: bool, mine: golang.Channel[_Task]) -> _Task | None:
        """Put the task that has run where it belongs. Returns the thread's next one, None when it is to end."""
        ended = None
        with self._lock:
            self._leave_locked(done)
            if done.stopped or not goes_on or self._ctx.err() is not None:
                ended = self._end_locked(done)
            elif done.triggered:
                self._queue_locked(done)
            else:
                self._wait_locked(done)
            # A thread that is busy anyway is quicker than one that has to be woken. The lock is held until here:
            # the timekeeper would start another thread for the turn that has just come free.
            self._queue_due_locked()
            surplus = self._threads > MAX_THREADS
            task = self._take_locked(thread_is_free=not surplus)
            is_over = task is None and (surplus or not self._tasks)
            if is_over:
                self._threads -= 1
            elif task is None:
                self._idle.append(mine)
        if ended is not None:
            self._tell_ended(done, ended)
        if task is not None or is_over:
            return task
        selected = golang.select(mine, self._ctx.done(), timeout=_IDLE_TIMEOUT)
        if given := selected.took(mine):
            return given.value if given.ok else None
        with self._lock:
            if mine in self._idle:
                self._idle.remove(mine)
                self._threads -= 1
                return None
        # A task was given at the last moment, or the thread was told to end.
        return mine.recv()[0]


def _counts(ticket: int, task: _Task) -> bool:
    """Whether the heap's entry with this ticket says when the task is to run."""
    return task.state is _State.WAITING and task.ticket == ticket
