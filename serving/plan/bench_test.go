package plan_test

import (
	"fmt"
	"testing"

	"millrace/serving/plan"
)

// BenchmarkMake plans a fleet of racks and servers from nothing; `millrace bench planner` has more sizes and cases.
func BenchmarkMake(b *testing.B) {
	for _, racks := range []int{1, 10, 70} {
		var hosts []plan.Host
		for i := range racks {
			hosts = append(hosts, rack(fmt.Sprint("r", i))...)
			for s := range 9 {
				hosts = append(hosts, machine(fmt.Sprintf("s%d-%d", i, s), 8))
			}
		}
		demands := wants(demand("rack", racks/2, whole(64), weight(3)), demand("eight", 5*racks, whole(8)), demand("two", 10*racks, whole(2)))
		b.Run(fmt.Sprint(racks*144, "GPUs"), func(b *testing.B) {
			for b.Loop() {
				if _, err := plan.Make(hosts, demands, nil, plan.Options{Spares: 8, SparesFrom: 72, AllowUnmet: true}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
