package kernels
import ("testing";"os";"encoding/binary";"fmt";"math")
func TestZZ(t *testing.T){
 f,_:=os.Open("../../shared/data/cranfield/vectors/docs.npy"); head:=make([]byte,10); f.Read(head); st:=10+int64(binary.LittleEndian.Uint16(head[8:]))
 n:=16384; x:=make([]float32,n*128); row:=make([]byte,256)
 for i:=range n { f.ReadAt(row,st+int64(i*14*256)); for j:=range 128 {x[i*128+j]=F16ToF32(binary.LittleEndian.Uint16(row[2*j:]))}}
 // kmeans 2 rounds K=4096
 k:=4096; cen:=append([]float32{},x[:0]...)
 for i:=range k { cen=append(cen,x[i*4*128:i*4*128+128]...)}
 codes:=make([]uint32,n)
 for range 3 { (generic{}).Nearest(codes,nil,cen,x,128); s:=make([]float32,k*128); for i,c:=range codes {for j:=range 128 {s[int(c)*128+j]+=x[i*128+j]}}
  for c:=range k {var q float64; for _,v:=range s[c*128:c*128+128]{q+=float64(v)*float64(v)}; if q==0{continue}; for j:=range 128 {cen[c*128+j]=float32(float64(s[c*128+j])/math.Sqrt(q))}}}
 p:=new(pruner); p.prepare(cen,128)
 var es []float64
 for c:=range k { var e float64; for j:=range 128 { l:=p.levels[c*64+j/2]>>(j&1*4)&15; d:=float64(cen[c*128+j])-float64(p.lo[j])-float64(p.step[j])*float64(l); e+=d*d}; es=append(es,math.Sqrt(e))}
 var m float64; for _,e:=range es {m+=e/float64(k)}
 fmt.Println("E max",p.err,"mean",m)
 // count candidates ideal
 var tot,ideal,b2,pc int; var bs float64
 for i:=0;i<512;i++ { xi:=x[i*32*128:i*32*128+128]; sc:=make([]float32,k); dotsOne(sc,xi,cen); b:=float32(-9); for _,v:=range sc {b=max(b,v)}; bs+=float64(b)/512
  for c:=range k { var a float64; for j:=range 128 { l:=p.levels[c*64+j/2]>>(j&1*4)&15; a+=float64(xi[j])*(float64(p.lo[j])+float64(p.step[j])*float64(l))}; if a+p.err+0.01>=float64(b) {ideal++}; if a+es[c]+0.01>=float64(b){pc++}; if a+2*p.err+0.02>=float64(b) {b2++}; if a+0.03>=float64(b) {tot++} } }
 fmt.Println("per row: ideal",float64(ideal)/512,"per-c err",float64(pc)/512,"2E",float64(b2)/512,"err .03",float64(tot)/512,"mean best",bs)
}
