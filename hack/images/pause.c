/*
 * The process that holds a pod's namespaces open.
 *
 * The process stays alive, and exits at once on SIGTERM or SIGINT. As process 1
 * of a pod that shares its process namespace, it reaps orphaned processes. It
 * blocks signals and waits for them, because a signal handler could race.
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
