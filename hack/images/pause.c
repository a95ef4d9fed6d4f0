/*
 * The process that holds a pod's namespaces open.
 *
 * It has three duties: stay alive, end at once on SIGTERM or SIGINT, and, being
 * process 1 of a pod that shares its process namespace, reap whatever is
 * orphaned there. Signals are blocked and then waited for, so that there is no
 * handler that could race with anything.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

int main(void) {
  sigset_t wanted;
  int received;

  sigemptyset(&wanted);
  sigaddset(&wanted, SIGTERM);
  sigaddset(&wanted, SIGINT);
  sigaddset(&wanted, SIGCHLD);
  if (sigprocmask(SIG_BLOCK, &wanted, NULL) != 0) {
    perror("pause: sigprocmask");
    return EXIT_FAILURE;
  }
  for (;;) {
    if (sigwait(&wanted, &received) != 0)
      continue;
    if (received != SIGCHLD)
      return EXIT_SUCCESS;
    while (waitpid(-1, NULL, WNOHANG) > 0)
      ;
  }
}
