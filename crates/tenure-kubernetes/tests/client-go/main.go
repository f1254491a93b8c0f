// client-go-elect takes part in an election as client-go's leaderelection does it, and
// prints what happens, one line each: the other half of a mixed fleet in the tests.
//
//	leading            OnStartedLeading
//	stopped            OnStoppedLeading
//	sees HOLDER        OnNewLeader
//	requests N         how many HTTP requests it has sent, after SIGUSR1
//	ended              the election is over
//
// SIGTERM ends the election as a program ends it that stops gracefully.
package main

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

var requests atomic.Int64

type counting struct{ next http.RoundTripper }

func (c counting) RoundTrip(r *http.Request) (*http.Response, error) {
	requests.Add(1)
	return c.next.RoundTrip(r)
}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "the kubeconfig file")
	namespace := flag.String("namespace", "default", "the Lease's namespace")
	name := flag.String("name", "", "the Lease's name")
	id := flag.String("id", "", "the holder")
	lease := flag.Duration("lease", 15*time.Second, "LeaseDuration")
	renew := flag.Duration("renew", 10*time.Second, "RenewDeadline")
	retry := flag.Duration("retry", 2*time.Second, "RetryPeriod")
	again := flag.Bool("again", false, "take part again after a loss")
	flag.Parse()

	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	// As controller-runtime and the components of Kubernetes do it.
	config.Timeout = *renew / 2
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return counting{next} })
	client := kubernetes.NewForConfigOrDie(config)

	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGUSR1)
	go func() {
		for s := range signals {
			if s == syscall.SIGUSR1 {
				fmt.Printf("requests %d\n", requests.Load())
			} else {
				cancel()
			}
		}
	}()

	for {
		leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
			Lock: &resourcelock.LeaseLock{
				LeaseMeta:  metav1.ObjectMeta{Namespace: *namespace, Name: *name},
				Client:     client.CoordinationV1(),
				LockConfig: resourcelock.ResourceLockConfig{Identity: *id},
			},
			ReleaseOnCancel: true,
			LeaseDuration:   *lease,
			RenewDeadline:   *renew,
			RetryPeriod:     *retry,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(context.Context) { fmt.Println("leading") },
				OnStoppedLeading: func() { fmt.Println("stopped") },
				OnNewLeader:      func(holder string) { fmt.Println("sees " + holder) },
			},
		})
		if ctx.Err() != nil || !*again {
			break
		}
	}
	fmt.Println("ended")
}
