"""Run the probe workers of all pods on a limited number of threads.

This file has no Go counterpart. In Go each worker has a goroutine; here workers share threads. A worker runs when it is
due or triggered, and never twice at the same time.

DIVERGES (platform): probes beyond MAX_PROBES_PER_POD of a pod, or MAX_THREADS of a node, wait for others to end.
Go: pkg/kubelet/prober/worker.go, (*worker).run: the number of running probes has no limit.
Why: each running probe needs a thread, and a manifest with thousands of probes would use up all threads.
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

# `MAX_PROBES_PER_POD` is the number of probes of one pod that may run at the same time. This pod's other probes wait
# for one of them to end.
MAX_PROBES_PER_POD = 8
# `MAX_THREADS` is the number of threads that run probes. A pod without a running probe gets a thread even beyond this
# number, so that hanging probes of some pods do not delay those of other pods.
MAX_THREADS = 256
# `_IDLE_TIMEOUT` is the time, in seconds, after which an idle thread ends.
_IDLE_TIMEOUT = 10.0
# `_GROWTH_PERIOD` is the time, in seconds, between the starts of two threads. The existing threads usually finish the
# probes that are due at once sooner than that.
_GROWTH_PERIOD = 0.005
# `_RETRY_PERIOD` is the time, in seconds, until the scheduler tries again to start a thread. `_TELL_PERIOD` is the
# shortest time between two log messages about waiting probes.
_RETRY_PERIOD = 1.0
_TELL_PERIOD = 60.0
# `_TELL_DELAY` is the time, in seconds, that a probe may wait for a thread before the scheduler logs the wait.
_TELL_DELAY = 1.0
# The heap may hold this many outdated entries, beyond the number of tasks, before the scheduler removes them.
_STALE_ENTRIES = 100


class Worker(Protocol):
    """Define what the scheduler runs. One thread at a time calls the methods of a worker."""

    @property
    def pod_uid(self) -> types.UID: ...

    @property
    def due(self) -> float:
        """Return the time of the next run, on the monotonic clock."""
        ...

    def run_once(self, ctx: golang.Context, triggered: bool) -> bool:
        """Run because the worker is due or triggered; report whether it must run again."""
        ...

    def end(self) -> None:
        """Clean up after the last run."""
        ...


class _State(enum.Enum):
    """Name what a worker waits for."""

    # The worker waits until it is due.
    WAITING = enum.auto()
    # The worker waits for a thread.
    QUEUED = enum.auto()
    # A thread runs the worker.
    RUNNING = enum.auto()
    ENDED = enum.auto()


@dataclass(slots=True, eq=False)
class _Task:
    """Hold a worker and its state in the scheduler."""

    worker: Worker
    state: _State = _State.WAITING
    # `ticket` is the ticket of the valid entry in the heap, while the task waits for its time.
    ticket: int = 0
    triggered: bool = False
    # `runs_triggered` tells whether a trigger caused the current run.
    runs_triggered: bool = False
    # `stopped` tells whether the worker was stopped during its run.
    stopped: bool = False
    # `cancel` is the function that cancels the current run; it is None between two runs.
    cancel: Callable[[], None] | None = None


@dataclass(slots=True, eq=False)
class _Pod:
    """Hold the tasks of one pod that wait for a thread, in order, and the number of its running tasks."""

    uid: types.UID
    queue: deque[_Task] = field(default_factory=deque)
    running: int = 0


class Scheduler:
    """Run the workers. All methods are thread-safe, and none waits for a worker."""

    def __init__(self, ctx: golang.Context, clock: clocklib.Clock) -> None:
        """Run workers until ctx is cancelled. The owner of ctx must call end_all after cancelling it."""
        self._ctx = ctx
        self._clock = clock
        self._changed: golang.Channel[None] = golang.Channel(1)  # A message means that _waiting has a new first entry.
        self._lock = golang.Mutex()  # This lock guards the fields below.
        self._tasks: dict[Worker, _Task] = {}
        # `_waiting` is a heap of the tasks that wait for their time. An entry has the time, a ticket and the task.
        # Outdated entries stay in the heap for a while.
        self._waiting: list[tuple[float, int, _Task]] = []
        self._tickets = itertools.count()
        # `_pods` holds the pods with a waiting or running task, by UID.
        self._pods: dict[types.UID, _Pod] = {}
        # `_turns` holds the pods with a task that may run now, in the order of their turns.
        self._turns: dict[_Pod, None] = {}
        # `_idle` holds the channels of the idle threads. The last idle thread gets the next task.
        self._idle: list[golang.Channel[_Task]] = []
        self._threads = 0
        self._timekeeper_runs = False
        # The timekeeper last logged that probes wait at the time `_told`, and last checked this at the time `_looked`.
        self._told = self._looked = float("-inf")

    def add(self, worker: Worker) -> None:
        """Run the worker from its due time on, until it ends or is stopped. The caller must call `tend` afterwards."""
        with self._lock:
            task = self._tasks[worker] = _Task(worker)
            try:
                self._wait_locked(task)
            except BaseException:
                task.state = _State.ENDED
                del self._tasks[worker]
                raise

    def tend(self) -> None:
        """Start the timekeeper thread if it does not run.

        Call this regularly because an earlier attempt may have failed.
        """
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
            klog.error_s(err, "Cannot start probing; the next housekeeping tries again", probes=waiting)

    def trigger(self, worker: Worker) -> None:
        """Run the worker now, or once more if it is running, instead of waiting for its due time."""
        with self._lock:
            task = self._tasks.get(worker)
            if task is None:
                return
            task.triggered = True
            if task.state is _State.WAITING:
                self._queue_locked(task)
                self._changed.try_send(None)

    def stop(self, worker: Worker) -> None:
        """Stop the worker permanently, and cancel its current run.

        DIVERGES (safer): a running probe ends with its pod.
        Go: pkg/kubelet/prober/worker.go, (*worker).stop: the probe continues until its timeout, which a pod may set to
        years.
        Why: until then no new pod with the same UID would be probed, and other probes would lack the thread.
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
        """Stop all workers. The caller has cancelled ctx."""
        with self._lock:
            workers = list(self._tasks)
        for worker in workers:
            self.stop(worker)

    # ---- The timekeeper ----

    def _keep_time(self) -> None:
        """Queue tasks when they are due, until there are no tasks left."""
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
        """Queue the due tasks, and set the timer for the next one; return False if there is nothing left to do."""
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

    # ---- The states of tasks ----

    def _queue_due_locked(self) -> None:
        now = self._clock.monotonic()
        while self._waiting and self._waiting[0][0] <= now:
            _, ticket, task = heapq.heappop(self._waiting)
            if _counts(ticket, task):
                self._queue_locked(task)

    def _wait_locked(self, task: _Task) -> None:
        """Let the task wait for its time."""
        task.state, task.ticket = _State.WAITING, next(self._tickets)
        heapq.heappush(self._waiting, (task.worker.due, task.ticket, task))
        if len(self._waiting) > 2 * len(self._tasks) + _STALE_ENTRIES:
            self._waiting = [entry for entry in self._waiting if _counts(*entry[1:])]
            heapq.heapify(self._waiting)
        if self._waiting[0][2] is task:
            self._changed.try_send(None)

    def _queue_locked(self, task: _Task) -> None:
        """Let the task wait for a thread."""
        task.state = _State.QUEUED
        uid = task.worker.pod_uid
        pod = self._pods.get(uid)
        if pod is None:
            pod = self._pods[uid] = _Pod(uid)
        pod.queue.append(task)
        self._give_turn_locked(pod)

    def _give_turn_locked(self, pod: _Pod) -> None:
        """Add the pod to the turns if another of its tasks may run; forget the pod if it has no tasks."""
        while pod.queue and pod.queue[0].state is _State.ENDED:
            pod.queue.popleft()
        if pod.queue and pod.running < MAX_PROBES_PER_POD:
            self._turns[pod] = None
            return
        self._turns.pop(pod, None)
        if not pod.queue and not pod.running:
            self._pods.pop(pod.uid, None)

    def _take_locked(self, thread_is_free: bool) -> _Task | None:
        """Return the next task to run, or None if there is no task or no thread for it."""
        room = thread_is_free or self._threads < MAX_THREADS
        pod = next((pod for pod in self._turns if room or not pod.running), None)
        if pod is None:
            return None
        task = pod.queue.popleft()
        task.state = _State.RUNNING
        task.runs_triggered, task.triggered = task.triggered, False
        pod.running += 1
        # The next turn belongs to another pod.
        del self._turns[pod]
        self._give_turn_locked(pod)
        return task

    def _leave_locked(self, task: _Task) -> None:
        """Record that the task no longer runs."""
        pod = self._pods[task.worker.pod_uid]
        pod.running -= 1
        self._give_turn_locked(pod)

    def _end_locked(self, task: _Task) -> list[golang.Channel[_Task]]:
        """End the task permanently; return the channels of the threads that are no longer needed."""
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

    # ---- The threads ----

    def _dispatch(self) -> float | None:
        """Give tasks to idle threads and to one new thread.

        Return the seconds until the next check, or None if only an event requires one.
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
        """Queue the task again, before others of its pod, because no thread could start for it."""
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
        """Log that probes wait for threads, but only once per _TELL_PERIOD; `err` tells why no thread could start."""
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
            klog.error_s(err, "Probes wait for a thread; retrying", **state)
        else:
            klog.info_s("Probes wait for others to end", **state, limitOfPod=MAX_PROBES_PER_POD, limit=MAX_THREADS)

    def _run(self, first: _Task) -> None:
        """Run tasks on this thread as long as there are any."""
        task: _Task | None = first
        mine: golang.Channel[_Task] = golang.Channel(1)
        while task is not None:
            task = self._next(task, self._run_task(task), mine)

    def _run_task(self, task: _Task) -> bool:
        """Run the task; report whether its worker must run again."""
        cancel = None
        try:
            ctx, cancel = golang.with_cancel(self._ctx)
            # This assignment needs no lock. `stop` sets `stopped` before it reads `cancel`, so at least one of the two
            # threads sees what the other one has set.
            task.cancel = cancel
            if task.stopped:
                return False
            return task.worker.run_once(ctx, task.runs_triggered)
        except Exception as err:
            # The thread serves all pods, and the worker may succeed the next time.
            klog.error_s(err, "Probe worker failed", podUID=task.worker.pod_uid, stacktrace=klog.stacktrace(err))
            return True
        finally:
            task.cancel = None
            if cancel is not None:
                cancel()

    def _next(self, done: _Task, goes_on: bool, mine: golang.Channel[_Task]) -> _Task | None:
        """Put the finished task into its next state; return this thread's next task, or None if the thread must end."""
        ended = None
        with self._lock:
            self._leave_locked(done)
            if done.stopped or not goes_on or self._ctx.err() is not None:
                ended = self._end_locked(done)
            elif done.triggered:
                self._queue_locked(done)
            else:
                self._wait_locked(done)
            # A busy thread takes over a task faster than an idle one, which must wake up. The lock is held until here
            # because otherwise the timekeeper would start another thread for the turn that has just become free.
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
        # The thread received a task at the last moment, or must end.
        return mine.recv()[0]


def _counts(ticket: int, task: _Task) -> bool:
    """Report whether the entry of the heap with this ticket is the valid one."""
    return task.state is _State.WAITING and task.ticket == ticket
