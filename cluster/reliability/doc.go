// Package reliability has tests that kill, stop and cut off the processes of clusters.
package reliability
